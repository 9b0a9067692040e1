package dropped

import (
	"go/ast"
	"go/token"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// fix defers what gives the hold back, where that is certainly right: outside a
// loop, where the hold is known to be there, and if nobody else was given it.
func (v *vetter) fix(h *hold) []analysis.SuggestedFix {
	if h.statement == nil && h.ident == nil {
		return nil
	}
	statement := h.call.Parent()
	for isParen(statement.Node()) {
		statement = statement.Parent()
	}
	a, ok := statement.Node().(*ast.AssignStmt)
	if _, inLoop := loopAround(h.call); !ok || inLoop || !isInList(statement) {
		return nil
	}
	after := statement
	if h.proof != nil {
		if after, ok = statement.NextSibling(); !ok || !v.leavesUnproven(after.Node(), h) {
			return nil
		}
	} else if h.kind == permit {
		return nil // who does not look at the error is told to first
	}
	fn, _ := v.function(h.call)
	name := h.ident.Name
	var edits []analysis.TextEdit
	if h.name == nil {
		if name = h.freeName(fn); name == "" || a.Tok != token.DEFINE {
			return nil
		}
		edits = append(edits, analysis.TextEdit{Pos: h.ident.Pos(), End: h.ident.End(), NewText: []byte(name)})
	} else if !v.onlyLooksOr(isGivenBack, h, fn) {
		return nil
	}
	end := after.Node().End()
	indent := strings.Repeat("\t", v.Fset.Position(a.Pos()).Column-1)
	edits = append(edits, analysis.TextEdit{Pos: end, End: end, NewText: []byte("\n" + indent + "defer " + h.remedy(name))})
	return []analysis.SuggestedFix{{Message: "Defer " + h.remedy(name), TextEdits: edits}}
}

// isInList reports whether a statement is one of a block: not the start of an
// if or a switch.
func isInList(c inspector.Cursor) bool {
	_, ok := c.Parent().Node().(*ast.BlockStmt)
	return ok
}

// leavesUnproven reports whether a statement returns if there is no hold, and
// does nothing else.
func (v *vetter) leavesUnproven(n ast.Node, h *hold) bool {
	s, ok := n.(*ast.IfStmt)
	if !ok || s.Init != nil || s.Else != nil || len(s.Body.List) == 0 {
		return false
	}
	if _, ok := s.Body.List[len(s.Body.List)-1].(*ast.ReturnStmt); !ok {
		return false
	}
	switch c := s.Cond.(type) {
	case *ast.UnaryExpr:
		return c.Op == token.NOT && v.variable(c.X) == h.proof
	case *ast.BinaryExpr:
		return c.Op == token.NEQ && v.variable(c.X) == h.proof && v.TypesInfo.Types[c.Y].IsNil()
	}
	return false
}

// freeName is a name for what had none, "" if the function uses it already.
func (h *hold) freeName(fn inspector.Cursor) string {
	name := "permit"
	if h.kind == cancel {
		name = "cancel"
	}
	for id := range fn.Preorder((*ast.Ident)(nil)) {
		if id.Node().(*ast.Ident).Name == name {
			return ""
		}
	}
	return name
}

// isGivenBack reports whether a mention of a hold is the call that gives it back,
// which may be done twice.
func isGivenBack(use inspector.Cursor) bool {
	switch n := use.Parent().Node().(type) {
	case *ast.SelectorExpr:
		return n.Sel.Name == "Release" || n.Sel.Name == "Cancel"
	case *ast.CallExpr:
		return n.Fun == use.Node()
	}
	return false
}

// onlyLooksOr reports whether the function only looks at the hold, or does what is
// allowed besides.
func (v *vetter) onlyLooksOr(does func(use inspector.Cursor) bool, h *hold, fn inspector.Cursor) bool {
	p := &paths{info: v.TypesInfo, hold: h}
	for use := range fn.Preorder((*ast.Ident)(nil)) {
		id := use.Node().(*ast.Ident)
		if v.TypesInfo.Uses[id] != h.name || does(use) {
			continue
		}
		if isShared(use, fn) || !p.leavesAlone(id, []ast.Node{use.Parent().Parent().Node(), use.Parent().Node()}, false) {
			return false
		}
	}
	return true
}
