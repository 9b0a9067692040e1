package checks

import (
	"go/ast"
	"go/token"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// checkLoop reports a Release that is deferred in the loop that acquires, if
// the loop repeats. A loop that acquires another semaphore in each iteration
// holds them all on purpose.
func (v *checker) checkLoop(h *hold, graph *cfg.CFG) {
	loop, ok := enclosingLoop(h.call)
	if !ok || v.dependsOn(h, loop) {
		return
	}
	for d := range loop.Preorder((*ast.DeferStmt)(nil)) {
		s := d.Node().(*ast.DeferStmt)
		if !v.releases(s, h) || !isInCycle(graph, s, nil) {
			continue // a defer in a literal is in another graph and runs when the literal returns
		}
		v.report(analysis.Diagnostic{Pos: s.Pos(), End: s.End(),
			Message: "this defer keeps the " + h.kind.noun + " of every iteration until the function returns; release " + h.ident.Name + " in the loop, or move the loop body into a function",
			Related: []analysis.RelatedInformation{{Pos: h.statement.Pos(), End: h.statement.End(), Message: "acquired here"}}})
	}
}

// enclosingLoop returns the innermost loop around c within its function.
func enclosingLoop(c inspector.Cursor) (inspector.Cursor, bool) {
	for l := range c.Enclosing((*ast.ForStmt)(nil), (*ast.RangeStmt)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		switch l.Node().(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return l, true
		}
		break
	}
	return inspector.Cursor{}, false
}

// dependsOn reports whether each iteration acquires another semaphore: the
// acquire mentions something that is declared in the loop.
func (v *checker) dependsOn(h *hold, loop inspector.Cursor) bool {
	call := h.call.Node().(*ast.CallExpr)
	named := []ast.Expr{call.Fun}
	if s, ok := call.Fun.(*ast.SelectorExpr); !ok || v.TypesInfo.Selections[s] == nil {
		named = call.Args // a function call: its arguments select the semaphore
	}
	depends := false
	for _, e := range named {
		ast.Inspect(e, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			if o := v.TypesInfo.Uses[id]; o != nil && isWithin(o.Pos(), loop.Node()) && !isNamed(o.Type(), "context", "Context") {
				depends = true
			}
			return true
		})
	}
	return depends
}

func isWithin(pos token.Pos, n ast.Node) bool { return n.Pos() <= pos && pos < n.End() }

// releases reports whether a deferred call is a Release of the permit, or a
// literal that contains one.
func (v *checker) releases(s *ast.DeferStmt, h *hold) bool {
	found := false
	ast.Inspect(s.Call, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Release" {
			id, ok := sel.X.(*ast.Ident)
			found = found || ok && v.TypesInfo.Uses[id] == h.name
		}
		return !found
	})
	return found
}

// isInCycle reports whether a node can be reached from itself without going
// through the block avoid.
func isInCycle(graph *cfg.CFG, n ast.Node, avoid *cfg.Block) bool {
	home := blockOf(graph, n)
	if home == nil || home == avoid {
		return false
	}
	seen := map[*cfg.Block]bool{avoid: true}
	next := slices.Clone(home.Succs)
	for len(next) > 0 {
		b := next[len(next)-1]
		next = next[:len(next)-1]
		if b == home {
			return true
		}
		if !seen[b] {
			seen[b] = true
			next = append(next, b.Succs...)
		}
	}
	return false
}

// blockOf returns the reachable block that contains a node, nil if there is
// none.
func blockOf(graph *cfg.CFG, n ast.Node) *cfg.Block {
	for _, b := range graph.Blocks {
		if b.Live && slices.Contains(b.Nodes, n) {
			return b
		}
	}
	return nil
}
