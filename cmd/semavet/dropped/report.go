package dropped

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
)

func (v *vetter) reportThrown(h *hold) {
	why := map[*kind]string{
		permit: "nothing can release it; keep it, and defer its Release",
		ticket: "it stays in line, and keeps what it is granted; keep it, and defer its Cancel",
		cancel: "what watches the permit does not end; keep it, and defer it",
	}
	at := ast.Node(h.call.Node())
	if h.ident != nil {
		at = h.ident
	}
	v.report(analysis.Diagnostic{Pos: at.Pos(), End: at.End(), SuggestedFixes: v.fix(h),
		Message: fmt.Sprintf("the %s of %s is dropped: %s", h.kind.noun, h.source(), why[h.kind])})
}

func (v *vetter) reportPath(h *hold, l *leak) {
	name := h.ident.Name
	missing := map[*kind]string{
		permit: name + " is not released",
		ticket: name + " is neither cancelled nor asked for its permit",
		cancel: name + " is not called",
	}
	what, fixes := "its next value", []analysis.SuggestedFix(nil)
	if !l.again {
		what, fixes = "the return", v.fix(h)
	}
	v.report(analysis.Diagnostic{Pos: h.ident.Pos(), End: h.ident.End(), SuggestedFixes: fixes,
		Message: fmt.Sprintf("%s on a path to %s in line %d; %s", missing[h.kind], what, v.Fset.Position(l.at.Pos()).Line, h.advice(l)),
		Related: []analysis.RelatedInformation{{Pos: l.at.Pos(), Message: "lost here"}}})
}

func (h *hold) advice(l *leak) string {
	switch {
	case l.again:
		return fmt.Sprintf("call %s before", h.remedy(h.ident.Name))
	case h.kind == permit && h.proof != nil:
		return fmt.Sprintf("defer %s after %s has been looked at", h.remedy(h.ident.Name), h.proof.Name())
	}
	return fmt.Sprintf("defer %s", h.remedy(h.ident.Name))
}

// remedy is the call that gives back what is called name.
func (h *hold) remedy(name string) string {
	switch h.kind {
	case permit:
		return name + ".Release()"
	case ticket:
		return name + ".Cancel()"
	}
	return name + "()"
}

func (v *vetter) report(d analysis.Diagnostic) {
	at := v.Fset.Position(d.Pos)
	if !v.ignore[line{at.Filename, at.Line}] {
		v.Report(d)
	}
}

// A line of a file.
type line struct {
	file string
	no   int
}

var ignoreComment = regexp.MustCompile(`^//semavet:ignore\b(.*)$`)

// ignoredLines are those whose reports a comment silences: its own and the next.
// A comment that gives no reason is reported, and silences nothing.
func ignoredLines(pass *analysis.Pass) map[line]bool {
	ignored := map[line]bool{}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			for _, c := range group.List {
				m := ignoreComment.FindStringSubmatch(c.Text)
				if m == nil {
					continue
				}
				if strings.TrimSpace(m[1]) == "" {
					pass.Report(analysis.Diagnostic{Pos: c.Pos(), End: c.End(), Message: "semavet:ignore demands a reason: //semavet:ignore <why it may be dropped>"})
					continue
				}
				at := pass.Fset.Position(c.Pos())
				ignored[line{at.Filename, at.Line}] = true
				ignored[line{at.Filename, at.Line + 1}] = true
			}
		}
	}
	return ignored
}
