package checks

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// endsHold reports whether n releases the hold or transfers it. Any mention
// does, except for those that visibly keep it.
func endsHold(p *paths, h *hold, n ast.Node) bool {
	if h.name == nil {
		return false
	}
	if r, ok := n.(*ast.ReturnStmt); ok && r.Results == nil && p.isResult(h.name) {
		return true
	}
	_, returning := n.(*ast.ReturnStmt)
	ends := false
	ast.PreorderStack(n, nil, func(n ast.Node, stack []ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && p.info.Uses[id] == h.name && !keepsHold(p.info, h, id, stack, returning) {
			ends = true
		}
		return !ends
	})
	return ends
}

// keepsHold reports whether a mention of the hold, in the context of stack,
// neither releases nor transfers it.
func keepsHold(info *types.Info, h *hold, id *ast.Ident, stack []ast.Node, returning bool) bool {
	if slices.ContainsFunc(stack, func(n ast.Node) bool { _, ok := n.(*ast.FuncLit); return ok }) {
		return false
	}
	parent := ancestor(stack, 1)
	switch n := parent.(type) {
	case *ast.SelectorExpr:
		call, ok := ancestor(stack, 2).(*ast.CallExpr)
		if !ok || call.Fun != n || !slices.Contains(h.kind.neutral, n.Sel.Name) {
			return false
		}
		return n.Sel.Name != "Context" || !returning // a context that is returned carries the permit
	case *ast.AssignStmt:
		if slices.Contains(n.Lhs, ast.Expr(id)) {
			return true
		}
		i := slices.Index(n.Rhs, ast.Expr(id))
		return len(n.Lhs) == len(n.Rhs) && isBlank(n.Lhs[i])
	case *ast.CallExpr:
		callee := calleeOf(info, n)
		return callee != nil && callee.Name() == "LeaseOf" && callee.Pkg() != nil && callee.Pkg().Path() == fleetPath
	}
	return false
}

func ancestor(stack []ast.Node, up int) ast.Node {
	if len(stack) < up {
		return nil
	}
	return stack[len(stack)-up]
}

// assigns reports whether n assigns to the variable.
func assigns(info *types.Info, n ast.Node, to *types.Var) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := ast.Unparen(e).(*ast.Ident); ok && info.ObjectOf(id) == to {
					found = true
				}
			}
		case *ast.ValueSpec:
			found = found || slices.ContainsFunc(n.Names, func(id *ast.Ident) bool { return info.Defs[id] == to })
		case *ast.IncDecStmt:
			found = found || isVar(info, n.X, to)
		case *ast.UnaryExpr:
			found = found || n.Op == token.AND && isVar(info, n.X, to)
		}
		return !found
	})
	return found
}

// obscuresStatus reports whether n uses the status in a way that the search
// cannot follow: a variable that is derived from it, or a test helper that
// checks it.
func obscuresStatus(info *types.Info, n ast.Node, status *types.Var) bool {
	derives := func(e ast.Expr) bool { return mentions(info, e, status) }
	switch n := n.(type) {
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Rhs, derives)
	case *ast.ValueSpec:
		return slices.ContainsFunc(n.Values, derives)
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		return ok && checksInTest(info, call, status)
	}
	return false
}

// checksInTest reports whether a call gets a test and the status. Such a helper
// fails the test if the status is not the expected one, which may be an error.
func checksInTest(info *types.Info, call *ast.CallExpr, status *types.Var) bool {
	if callee := calleeOf(info, call); callee != nil && strings.HasPrefix(callee.Name(), "NoErr") {
		return false // after such a helper, the permit is held
	}
	return slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return isVar(info, e, status) }) &&
		slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return isTest(info.TypeOf(e)) })
}

// failsTest reports whether n fails or skips a test. The test's permits do not
// matter after that.
func failsTest(info *types.Info, n ast.Node) bool {
	s, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	callee := calleeOf(info, call)
	if callee == nil || callee.Pkg() == nil || callee.Pkg().Path() != "testing" {
		return false
	}
	name := callee.Name()
	return strings.HasPrefix(name, "Fail") || strings.HasPrefix(name, "Error") || strings.HasPrefix(name, "Fatal") || strings.HasPrefix(name, "Skip")
}

func isTest(t types.Type) bool {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	return slices.ContainsFunc([]string{"T", "B", "F", "TB"}, func(name string) bool { return isNamed(t, "testing", name) })
}

func mentions(info *types.Info, n ast.Node, v *types.Var) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && info.Uses[id] == v
		return !found
	})
	return found
}

func isVar(info *types.Info, e ast.Expr, v *types.Var) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && info.Uses[id] == v
}

// calleeOf returns the function or method that a call calls, as it is declared;
// nil if it is a value.
func calleeOf(info *types.Info, call *ast.CallExpr) *types.Func {
	fn, ok := typeutil.Callee(info, call).(*types.Func)
	if !ok {
		return nil
	}
	return fn.Origin()
}
