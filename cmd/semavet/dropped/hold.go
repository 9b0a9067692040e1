package dropped

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ast/inspector"
)

const (
	semaPath  = "github.com/sema-go/sema"
	fleetPath = "github.com/sema-go/sema/fleet"
)

// A kind is what must be given back.
type kind struct {
	noun    string
	neutral []string // methods that leave it where it is
}

var (
	permit = &kind{"permit", []string{"Weight", "Held", "Owner", "Lost", "Err", "Context", "String", "GoString", "LogValue"}}
	ticket = &kind{"ticket", []string{"Ready", "String", "GoString", "LogValue"}}
	cancel = &kind{"cancel function", nil}
)

// A hold is something that a call hands out, and that must be given back.
type hold struct {
	kind      *kind
	call      inspector.Cursor
	statement ast.Node   // which gives it a name; nil if nothing does
	ident     *ast.Ident // where it stands on the left; _ if it is thrown away there
	name      *types.Var // nil for _
	proof     *types.Var // the error or bool that tells whether there is anything; nil if there certainly is, or nobody looks
}

func (h *hold) source() string { return types.ExprString(h.call.Node().(*ast.CallExpr).Fun) }

// handedOut is what a call hands out that nobody has taken charge of yet.
func (v *vetter) handedOut(c inspector.Cursor) []*hold {
	call := c.Node().(*ast.CallExpr)
	kind, results, proof := v.results(call)
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
		if slices.Contains(kind.neutral, s.Sel.Name) { // and is gone then
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
		if proof >= 0 && !isBlank(left[proof]) {
			if h.proof = v.variable(left[proof]); h.proof == nil || !tellsWhenThere(h.proof) {
				continue // a field, say: what is known of it is not followed
			}
		}
		id, ok := left[i].(*ast.Ident)
		if !ok {
			continue // stored
		}
		h.ident = id
		if id.Name == "_" {
			if h.proof == nil {
				h.statement = nil // and nobody looks whether there is one
			}
		} else if h.name = v.variable(id); h.name == nil {
			continue
		}
		holds = append(holds, h)
	}
	return holds
}

// results says which results of a call must be given back, and which of them
// tells whether there is anything to give back, -1 if none.
//
// A function that returns a bare Permit may as well be one that shows somebody's,
// so it counts only if it is known to hand one over.
func (v *vetter) results(call *ast.CallExpr) (k *kind, results []int, proof int) {
	callee := calleeOf(v.TypesInfo, call)
	if callee != nil && callee.Name() == "Context" && isMethodOf(callee, "Permit") {
		return cancel, []int{1}, -1
	}
	if callee != nil && callee.Name() == "Request" && isMethodOf(callee, "Semaphore") && !v.asksForNothing(call) {
		return ticket, []int{0}, -1
	}
	if callee != nil && v.isHandover(callee) {
		return permit, []int{0}, -1
	}
	tuple, ok := v.TypesInfo.TypeOf(call).(*types.Tuple)
	if !ok || tuple.Len() < 2 || v.asksForNothing(call) {
		return nil, nil, -1
	}
	proof = tuple.Len() - 1
	if last := tuple.At(proof).Type(); !isError(last) && !types.Identical(last, types.Typ[types.Bool]) {
		return nil, nil, -1
	}
	for i := range proof {
		if isNamed(tuple.At(i).Type(), semaPath, "Permit") {
			results = append(results, i)
		}
	}
	if results == nil || v.comesBackByTime(call) {
		return nil, nil, -1
	}
	return permit, results, proof
}

// tellsWhenThere reports whether a nil error, or a true bool, means that there is
// something: of a bool its name must say so.
func tellsWhenThere(proof *types.Var) bool { return isError(proof.Type()) || proof.Name() == "ok" }

// weightOf is what is asked for, by an Acquire, TryAcquire or Request; nil if the
// call is none of these.
func weightOf(call *ast.CallExpr) ast.Expr {
	s, ok := call.Fun.(*ast.SelectorExpr)
	switch {
	case ok && s.Sel.Name == "Request" && len(call.Args) == 1:
		return call.Args[0]
	case ok && (s.Sel.Name == "Acquire" || s.Sel.Name == "TryAcquire") && len(call.Args) == 2:
		return call.Args[1]
	}
	return nil
}

// asksForNothing reports whether the weight is known to be 0 or less, for which
// there is no permit that could be lost.
func (v *vetter) asksForNothing(call *ast.CallExpr) bool {
	weight := weightOf(call)
	if weight == nil {
		return false
	}
	known := v.TypesInfo.Types[weight].Value
	return known != nil && known.Kind() == constant.Int && constant.Sign(known) <= 0
}

// comesBackByTime reports whether what is acquired may be of a rate, which need
// not be released: of a fleet semaphore, or one of which the type does not tell,
// in a package that makes one with a rate.
func (v *vetter) comesBackByTime(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || v.TypesInfo.Selections[s] == nil || !v.makesRates() {
		return false
	}
	t := v.TypesInfo.TypeOf(s.X)
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	return types.IsInterface(t) || isNamed(t, fleetPath, "Semaphore")
}

// makesRates reports whether the package uses the option Rate of fleet semaphores.
func (v *vetter) makesRates() bool {
	for _, o := range v.TypesInfo.Uses {
		if f, ok := o.(*types.Func); ok && f.Name() == "Rate" && f.Pkg() != nil && f.Pkg().Path() == fleetPath {
			return true
		}
	}
	return false
}

// variable is the variable that e is, nil if it is none.
func (v *vetter) variable(e ast.Expr) *types.Var {
	id, ok := e.(*ast.Ident)
	if !ok {
		return nil
	}
	found, _ := v.TypesInfo.ObjectOf(id).(*types.Var)
	return found
}

// leftOf is what stands left of value in an assignment: one for each of its
// results.
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

func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

// isMethodOf reports whether fn is a method of one of the named types of sema.
func isMethodOf(fn *types.Func, names ...string) bool {
	receiver := fn.Signature().Recv()
	if receiver == nil {
		return false
	}
	t := types.Unalias(receiver.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	return slices.ContainsFunc(names, func(name string) bool { return isNamed(t, semaPath, name) })
}
