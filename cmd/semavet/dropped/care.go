package dropped

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/types/typeutil"
)

// caredFor reports whether n gives the hold back, or hands it to somebody else.
// Any mention does, except for those that can be seen to leave it where it is.
func (p *paths) caredFor(n ast.Node) bool {
	if p.hold.name == nil {
		return false
	}
	if r, ok := n.(*ast.ReturnStmt); ok && r.Results == nil && p.isResult(p.hold.name) {
		return true
	}
	_, returning := n.(*ast.ReturnStmt)
	cared := false
	ast.PreorderStack(n, nil, func(n ast.Node, stack []ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && p.info.Uses[id] == p.hold.name && !p.leavesAlone(id, stack, returning) {
			cared = true
		}
		return !cared
	})
	return cared
}

// leavesAlone reports whether a mention of the hold, with what it stands in,
// neither gives it back nor lets anybody else do so.
func (p *paths) leavesAlone(id *ast.Ident, stack []ast.Node, returning bool) bool {
	if slices.ContainsFunc(stack, func(n ast.Node) bool { _, ok := n.(*ast.FuncLit); return ok }) {
		return false
	}
	parent := ancestor(stack, 1)
	switch n := parent.(type) {
	case *ast.SelectorExpr:
		call, ok := ancestor(stack, 2).(*ast.CallExpr)
		if !ok || call.Fun != n || !slices.Contains(p.hold.kind.neutral, n.Sel.Name) {
			return false
		}
		return n.Sel.Name != "Context" || !returning // a context that leaves carries the permit
	case *ast.AssignStmt:
		if slices.Contains(n.Lhs, ast.Expr(id)) {
			return true
		}
		i := slices.Index(n.Rhs, ast.Expr(id))
		return len(n.Lhs) == len(n.Rhs) && isBlank(n.Lhs[i])
	case *ast.CallExpr:
		callee := calleeOf(p.info, n)
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

// assigns reports whether n gives the variable another value.
func (p *paths) assigns(n ast.Node, to *types.Var) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := ast.Unparen(e).(*ast.Ident); ok && p.info.ObjectOf(id) == to {
					found = true
				}
			}
		case *ast.ValueSpec:
			found = found || slices.ContainsFunc(n.Names, func(id *ast.Ident) bool { return p.info.Defs[id] == to })
		case *ast.IncDecStmt:
			found = found || p.isVar(n.X, to)
		case *ast.UnaryExpr:
			found = found || n.Op == token.AND && p.isVar(n.X, to)
		}
		return !found
	})
	return found
}

// obscures reports whether n uses the proof in a way that others may judge by:
// a variable that is made from it, or a helper of a test that is to check it.
func (p *paths) obscures(n ast.Node) bool {
	proof := p.hold.proof
	switch n := n.(type) {
	case *ast.AssignStmt:
		return slices.ContainsFunc(n.Rhs, func(e ast.Expr) bool { return p.mentions(e, proof) })
	case *ast.ValueSpec:
		return slices.ContainsFunc(n.Values, func(e ast.Expr) bool { return p.mentions(e, proof) })
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		return ok && p.checksInTest(call)
	}
	return false
}

// checksInTest reports whether a call is given a test and the proof. It has the
// test fail if the proof is not what it ought to be, which may be an error.
func (p *paths) checksInTest(call *ast.CallExpr) bool {
	if callee := calleeOf(p.info, call); callee != nil && strings.HasPrefix(callee.Name(), "NoErr") {
		return false // who goes on from there has the permit
	}
	return slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return p.isVar(e, p.hold.proof) }) &&
		slices.ContainsFunc(call.Args, func(e ast.Expr) bool { return isTest(p.info.TypeOf(e)) })
}

// failsTest reports whether n makes a test fail, or skips it. What it held is
// gone with it.
func (p *paths) failsTest(n ast.Node) bool {
	s, ok := n.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	callee := calleeOf(p.info, call)
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

func (p *paths) mentions(n ast.Node, v *types.Var) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && p.info.Uses[id] == v
		return !found
	})
	return found
}

func (p *paths) isVar(e ast.Expr, v *types.Var) bool {
	id, ok := ast.Unparen(e).(*ast.Ident)
	return ok && p.info.Uses[id] == v
}

func calleeOf(info *types.Info, call *ast.CallExpr) *types.Func {
	fn, _ := typeutil.Callee(info, call).(*types.Func)
	return fn
}
