package checks

import (
	"go/ast"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// A leak is where a hold is dropped.
type leak struct {
	at         ast.Node
	reassigned bool // at assigns another value to the variable; false: at is a return
}

// A leakSearch searches the paths from a hold for one that drops it.
type leakSearch struct {
	*paths
	hold   *hold
	isMain bool // fn is main, whose return ends the process
	inTest bool
	found  *leak
}

// findLeak returns where the hold is dropped, nil if it is not, or not
// certainly.
func findLeak(pass *analysis.Pass, h *hold, fn inspector.Cursor, graph *cfg.CFG) *leak {
	s := &leakSearch{paths: newPaths(pass.TypesInfo, h.call, fn, graph, h.status), hold: h,
		isMain: isMain(pass, fn), inTest: inTestFile(pass, h.statement)}
	s.visit, s.absent = s.visitNode, s.isHeldCall
	home := blockOf(graph, h.statement)
	if home == nil || s.endsInLoop(home) {
		return nil
	}
	start := s.initialState()
	start.confirmed = h.status == nil
	if _, err := s.from(h.statement, start); err != nil {
		return nil
	}
	return s.found
}

// isMain reports whether fn is the function main of a program.
func isMain(pass *analysis.Pass, fn inspector.Cursor) bool {
	d, ok := fn.Node().(*ast.FuncDecl)
	return ok && d.Name.Name == "main" && d.Recv == nil && pass.Pkg.Name() == "main"
}

// endsInLoop reports whether the hold ends in some iteration of a later loop.
// The search determines neither which iteration that is nor whether there is
// one.
func (s *leakSearch) endsInLoop(home *cfg.Block) bool {
	for _, b := range s.graph.Blocks {
		for _, n := range b.Nodes {
			if endsHold(s.paths, s.hold, n) && isInCycle(s.graph, n, home) {
				return true
			}
		}
	}
	return false
}

// visitNode finds a leak. A path is done if the hold is dropped there, or need
// not be followed any more.
func (s *leakSearch) visitNode(n ast.Node, k *state) (found, done bool) {
	h := s.hold
	if endsHold(s.paths, h, n) || failsTest(s.info, n) {
		return false, true
	}
	if n == h.statement || h.name != nil && assigns(s.info, n, h.name) {
		return s.lose(n, k, true), true
	}
	if r, ok := n.(*ast.ReturnStmt); ok {
		return s.lose(r, k, false), true
	}
	obscure := h.status != nil && !k.detached && !k.confirmed && obscuresStatus(s.info, n, h.status)
	return false, obscure
}

// lose records a leak, unless it does not matter here.
func (s *leakSearch) lose(n ast.Node, k *state, reassigned bool) bool {
	if s.isMain && !reassigned {
		return false
	}
	// In a test, a permit without a name comes from an acquire that is expected
	// to fail.
	if s.inTest && s.hold.name == nil && !k.confirmed {
		return false
	}
	s.found = &leak{n, reassigned}
	return true
}

// isHeldCall reports whether a condition is a call of the hold's Held method.
func (s *leakSearch) isHeldCall(condition ast.Expr) bool {
	call, ok := condition.(*ast.CallExpr)
	if !ok || s.hold.name == nil {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "Held" && isVar(s.info, f.X, s.hold.name)
}
