package checks

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// handsOver is a fact about a function whose only result is a Permit, or of
// another granted kind: it returns one that it acquired and stored nowhere else, like mustAcquire. The
// caller must release it. A function that returns a permit that is held
// elsewhere has no such fact.
type handsOver struct{}

// AFact implements [analysis.Fact], which exports handsOver to importing
// packages.
func (*handsOver) AFact() {}

func (*handsOver) String() string { return "hands over what it acquired" }

// findHandovers computes the fact for all functions, up to a fixed point: they
// may call each other.
func (v *checker) findHandovers(root inspector.Cursor) {
	for changed := true; changed; {
		changed = false
		for c := range root.Preorder((*ast.FuncDecl)(nil)) {
			fn, ok := v.TypesInfo.Defs[c.Node().(*ast.FuncDecl).Name].(*types.Func)
			if !ok || v.isHandover(fn) || !returnsGranted(fn) || !v.handsOver(c) {
				continue
			}
			v.ExportObjectFact(fn, new(handsOver))
			changed = true
		}
	}
}

func (v *checker) isHandover(fn *types.Func) bool {
	return v.ImportObjectFact(fn, new(handsOver))
}

func returnsGranted(fn *types.Func) bool {
	results := fn.Signature().Results()
	return results.Len() == 1 && grantedKindOf(results.At(0).Type()) != nil
}

// handsOver reports whether everything that a function returns is something that
// it acquired, and there is at least one such return.
func (v *checker) handsOver(fn inspector.Cursor) bool {
	acquired := false
	for r := range fn.Preorder((*ast.ReturnStmt)(nil)) {
		s := r.Node().(*ast.ReturnStmt)
		if in, _ := v.function(r); in != fn {
			continue // the return of a function literal
		}
		if len(s.Results) != 1 {
			return false
		}
		switch result := ast.Unparen(s.Results[0]).(type) {
		case *ast.CompositeLit: // the inert permit
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

// isAcquired reports whether a variable of fn is the result of a call that
// returns a hold, and is used only in the return.
func (v *checker) isAcquired(of *types.Var, fn inspector.Cursor) bool {
	acquired := false
	for c := range fn.Preorder((*ast.CallExpr)(nil)) {
		for _, h := range v.holdsOf(c) {
			if of == nil || h.name != of {
				continue
			}
			if in, _ := v.function(c); in != fn || !v.onlyReadsOr(isReturned, h, fn) {
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
