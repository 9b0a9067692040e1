package checks

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// fix suggests deferring the release of the hold, if that is certainly right:
// outside a loop, where the hold is known to exist, and if it is not
// transferred.
func (v *checker) fix(h *hold) []analysis.SuggestedFix {
	if h.statement == nil && h.ident == nil {
		return nil
	}
	statement := h.call.Parent()
	for isParen(statement.Node()) {
		statement = statement.Parent()
	}
	a, ok := statement.Node().(*ast.AssignStmt)
	if _, inLoop := enclosingLoop(h.call); !ok || inLoop || !isInList(statement) {
		return nil
	}
	after := statement
	if h.status != nil {
		if after, ok = statement.NextSibling(); !ok || !v.returnsOnFailure(after.Node(), h) {
			return nil
		}
	} else if h.kind.isGranted() {
		return nil // the error must be checked first
	}
	fn, _ := v.function(h.call)
	name := h.ident.Name
	var edits []analysis.TextEdit
	if h.name == nil {
		if name = h.freeName(fn); name == "" || a.Tok != token.DEFINE {
			return nil
		}
		edits = append(edits, analysis.TextEdit{Pos: h.ident.Pos(), End: h.ident.End(), NewText: []byte(name)})
	} else if !v.onlyReadsOr(h.isReleaseCall, h, fn) {
		return nil
	}
	end := after.Node().End()
	indent := strings.Repeat("\t", v.Fset.Position(a.Pos()).Column-1)
	edits = append(edits, analysis.TextEdit{Pos: end, End: end, NewText: []byte("\n" + indent + "defer " + h.kind.releaseCall(name))})
	return []analysis.SuggestedFix{{Message: "Defer " + h.kind.releaseCall(name), TextEdits: edits}}
}

// isInList reports whether a statement is an element of a block, and not the
// init statement of an if or a switch.
func isInList(c inspector.Cursor) bool {
	_, ok := c.Parent().Node().(*ast.BlockStmt)
	return ok
}

// returnsOnFailure reports whether a statement returns if there is no hold, and
// does nothing else.
func (v *checker) returnsOnFailure(n ast.Node, h *hold) bool {
	s, ok := n.(*ast.IfStmt)
	if !ok || s.Init != nil || s.Else != nil || len(s.Body.List) == 0 {
		return false
	}
	if _, ok := s.Body.List[len(s.Body.List)-1].(*ast.ReturnStmt); !ok {
		return false
	}
	switch c := s.Cond.(type) {
	case *ast.UnaryExpr:
		return c.Op == token.NOT && v.variable(c.X) == h.status
	case *ast.BinaryExpr:
		return c.Op == token.NEQ && v.variable(c.X) == h.status && v.TypesInfo.Types[c.Y].IsNil()
	}
	return false
}

// freeName returns a name for an unnamed hold, "" if the function already uses
// that name.
func (h *hold) freeName(fn inspector.Cursor) string {
	name, _, _ := strings.Cut(h.kind.noun, " ")
	for id := range fn.Preorder((*ast.Ident)(nil)) {
		if id.Node().(*ast.Ident).Name == name {
			return ""
		}
	}
	return name
}

// isReleaseCall reports whether a mention of a hold is a call that releases it,
// which may be repeated.
func (h *hold) isReleaseCall(use inspector.Cursor) bool {
	switch n := use.Parent().Node().(type) {
	case *ast.SelectorExpr:
		return slices.Contains(h.kind.releases, n.Sel.Name)
	case *ast.CallExpr:
		return n.Fun == use.Node()
	}
	return false
}

// onlyReadsOr reports whether the function only reads the hold or uses it as
// allowed.
func (v *checker) onlyReadsOr(allowed func(use inspector.Cursor) bool, h *hold, fn inspector.Cursor) bool {
	for use := range fn.Preorder((*ast.Ident)(nil)) {
		id := use.Node().(*ast.Ident)
		if v.TypesInfo.Uses[id] != h.name || allowed(use) {
			continue
		}
		if isShared(use, fn) || !keepsHold(v.TypesInfo, h, id, []ast.Node{use.Parent().Parent().Node(), use.Parent().Node()}, false) {
			return false
		}
	}
	return true
}
