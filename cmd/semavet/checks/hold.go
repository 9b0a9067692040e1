package checks

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ast/inspector"
)

// A hold is a value that a call returns and that must be released.
type hold struct {
	kind      *kind
	call      inspector.Cursor
	statement ast.Node   // the assignment that gives it a name; nil if there is none
	ident     *ast.Ident // on the left side of the assignment; _ if it is discarded there
	name      *types.Var // nil for _
	status    *types.Var // the error or bool that reports success; nil if the call always succeeds or the result is ignored
}

func (h *hold) source() string { return types.ExprString(h.call.Node().(*ast.CallExpr).Fun) }

// holdsOf returns the holds that a call returns and its statement does not
// already transfer.
func (v *checker) holdsOf(c inspector.Cursor) []*hold {
	call := c.Node().(*ast.CallExpr)
	kind, results, status := v.results(call)
	if kind == nil {
		return nil
	}
	outer := c
	for isParen(outer.Parent().Node()) {
		outer = outer.Parent()
	}
	var left []ast.Expr
	switch s := outer.Parent().Node().(type) {
	case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
		return []*hold{{kind: kind, call: c}}
	case *ast.SelectorExpr:
		if slices.Contains(kind.neutral, s.Sel.Name) { // the value is dropped after that call
			return []*hold{{kind: kind, call: c}}
		}
		return nil
	case *ast.AssignStmt:
		left = leftOf(s.Lhs, s.Rhs, outer.Node())
	case *ast.ValueSpec:
		left = leftOf(exprs(s.Names), s.Values, outer.Node())
	}
	if left == nil {
		return nil
	}
	var holds []*hold
	for _, i := range results {
		h := &hold{kind: kind, call: c, statement: outer.Parent().Node()}
		if status >= 0 && !isBlank(left[status]) {
			if h.status = v.variable(left[status]); h.status == nil || !indicatesSuccess(h.status) {
				continue // a field, for example: its value is not tracked
			}
		}
		id, ok := left[i].(*ast.Ident)
		if !ok {
			continue // stored
		}
		h.ident = id
		if id.Name == "_" {
			if h.status == nil {
				h.statement = nil // the status is ignored as well
			}
		} else if h.name = v.variable(id); h.name == nil {
			continue
		}
		holds = append(holds, h)
	}
	return holds
}

// results returns which results of a call must be released, and which result
// reports success, -1 if none.
//
// A function that returns only a Permit may return one that is held elsewhere.
// It counts only if it is known to hand over what it acquired.
func (v *checker) results(call *ast.CallExpr) (k *kind, results []int, status int) {
	if v.hasNoWeight(call) {
		return nil, nil, -1
	}
	if callee := calleeOf(v.TypesInfo, call); callee != nil {
		if s := sourceOf(callee); s != nil {
			return s.kind, []int{s.index}, -1
		}
		if v.isHandover(callee) {
			return grantedKindOf(v.TypesInfo.TypeOf(call)), []int{0}, -1
		}
	}
	k, results, status = v.granted(call)
	if k == nil || k == permit && v.mayBeRate(call) {
		return nil, nil, -1
	}
	return k, results, status
}

// granted returns which results of a call are of a granted kind, and which one
// is the error or bool that reports success; nil if the call does not return
// both.
func (v *checker) granted(call *ast.CallExpr) (k *kind, results []int, status int) {
	tuple, ok := v.TypesInfo.TypeOf(call).(*types.Tuple)
	if !ok || tuple.Len() < 2 {
		return nil, nil, -1
	}
	status = tuple.Len() - 1
	if last := tuple.At(status).Type(); !isError(last) && !isBoolean(last) {
		return nil, nil, -1
	}
	for i := range status {
		if found := grantedKindOf(tuple.At(i).Type()); found != nil && (k == nil || k == found) {
			k, results = found, append(results, i)
		}
	}
	return k, results, status
}

// indicatesSuccess reports whether a nil error, or a true bool, means success:
// a bool must be named ok.
func indicatesSuccess(status *types.Var) bool { return isError(status.Type()) || status.Name() == "ok" }

// weightOf returns the weight argument of an Acquire, TryAcquire or Request, with
// or without a context; nil for other calls.
func weightOf(call *ast.CallExpr) ast.Expr {
	s, ok := call.Fun.(*ast.SelectorExpr)
	switch {
	case ok && s.Sel.Name == "Request" && len(call.Args) == 1:
		return call.Args[0]
	case ok && (s.Sel.Name == "Acquire" || s.Sel.Name == "TryAcquire") && (len(call.Args) == 1 || len(call.Args) == 2):
		return call.Args[len(call.Args)-1]
	}
	return nil
}

// hasNoWeight reports whether the weight is known to be 0 or less. Such a call
// returns no permit that could be lost.
func (v *checker) hasNoWeight(call *ast.CallExpr) bool {
	weight := weightOf(call)
	if weight == nil {
		return false
	}
	known := v.TypesInfo.Types[weight].Value
	return known != nil && known.Kind() == constant.Int && constant.Sign(known) <= 0
}

// mayBeRate reports whether a permit may be that of a rate, which need not be
// released: one of package rate; or one of a fleet semaphore, or of an interface, in a
// package that uses rates.
func (v *checker) mayBeRate(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || v.TypesInfo.Selections[s] == nil {
		return false
	}
	t := pointedTo(v.TypesInfo.TypeOf(s.X))
	if isNamed(t, ratePath, "Gate") || isNamed(t, ratePath, "Limiter") {
		return true
	}
	return (types.IsInterface(t) || isNamed(t, fleetPath, "Semaphore")) && v.usesRates()
}

// usesRates reports whether the package uses package rate, or the option Rate of fleet
// semaphores.
func (v *checker) usesRates() bool {
	for _, o := range v.TypesInfo.Uses {
		f, ok := o.(*types.Func)
		if ok && f.Pkg() != nil && (f.Name() == "Rate" && f.Pkg().Path() == fleetPath || f.Pkg().Path() == ratePath) {
			return true
		}
	}
	return false
}

// variable returns the variable that e refers to, nil if there is none.
func (v *checker) variable(e ast.Expr) *types.Var {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	found, _ := v.TypesInfo.ObjectOf(id).(*types.Var)
	return found
}

// leftOf returns the left side of value in an assignment: one expression for
// each of its results.
func leftOf(left, values []ast.Expr, value ast.Node) []ast.Expr {
	if len(values) == 1 {
		return left
	}
	i := slices.IndexFunc(values, func(e ast.Expr) bool { return e == value })
	if i < 0 || i >= len(left) {
		return nil
	}
	return left[i : i+1]
}

func exprs(ids []*ast.Ident) []ast.Expr {
	list := make([]ast.Expr, len(ids))
	for i, id := range ids {
		list[i] = id
	}
	return list
}

func isBlank(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == "_"
}

func isParen(n ast.Node) bool {
	_, ok := n.(*ast.ParenExpr)
	return ok
}
