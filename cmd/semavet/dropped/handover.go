package dropped

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// handsOver is known of a function that returns nothing but a Permit, if it is
// one that it acquired and kept nowhere else: mustAcquire, say. Whoever calls it
// must release it. A function that shows a permit of somebody's is not one.
type handsOver struct{}

// AFact makes it known to the packages that import this one.
func (*handsOver) AFact() {}

func (*handsOver) String() string { return "hands over a permit" }

// findHandovers looks at all functions until there is nothing new: they may
// call each other.
func (v *vetter) findHandovers(root inspector.Cursor) {
	for again := true; again; {
		again = false
		for c := range root.Preorder((*ast.FuncDecl)(nil)) {
			fn, ok := v.TypesInfo.Defs[c.Node().(*ast.FuncDecl).Name].(*types.Func)
			if !ok || v.isHandover(fn) || !returnsPermit(fn) || !v.handsOver(c) {
				continue
			}
			v.ExportObjectFact(fn, new(handsOver))
			again = true
		}
	}
}

func (v *vetter) isHandover(fn *types.Func) bool {
	return v.ImportObjectFact(fn, new(handsOver))
}

func returnsPermit(fn *types.Func) bool {
	results := fn.Signature().Results()
	return results.Len() == 1 && isNamed(results.At(0).Type(), semaPath, "Permit")
}

// handsOver reports whether every permit that a function returns is one that it
// acquired, and there is one.
func (v *vetter) handsOver(fn inspector.Cursor) bool {
	acquired := false
	for r := range fn.Preorder((*ast.ReturnStmt)(nil)) {
		s := r.Node().(*ast.ReturnStmt)
		if in, _ := v.function(r); in != fn {
			continue // of a literal
		}
		if len(s.Results) != 1 {
			return false
		}
		switch result := ast.Unparen(s.Results[0]).(type) {
		case *ast.CompositeLit: // the inert one
		case *ast.CallExpr:
			if callee := calleeOf(v.TypesInfo, result); callee == nil || !v.isHandover(callee) {
				return false
			}
			acquired = true
		case *ast.Ident:
			if !v.isAcquired(v.variable(result), fn) {
				return false
			}
			acquired = true
		default:
			return false
		}
	}
	return acquired
}

// isAcquired reports whether a variable of fn is had from a call that hands
// permits out, and is nowhere else but in the return.
func (v *vetter) isAcquired(of *types.Var, fn inspector.Cursor) bool {
	acquired := false
	for c := range fn.Preorder((*ast.CallExpr)(nil)) {
		for _, h := range v.handedOut(c) {
			if of == nil || h.name != of {
				continue
			}
			if in, _ := v.function(c); in != fn || !v.onlyLooksOr(isReturned, h, fn) {
				return false
			}
			acquired = true
		}
	}
	return acquired
}

func isReturned(use inspector.Cursor) bool {
	_, ok := use.Parent().Node().(*ast.ReturnStmt)
	return ok
}
