package checks

import (
	"fmt"
	"go/ast"
	"iter"
	"reflect"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
)

func (v *checker) reportDiscarded(h *hold) {
	at := ast.Node(h.call.Node())
	if h.ident != nil {
		at = h.ident
	}
	v.report(analysis.Diagnostic{Pos: at.Pos(), End: at.End(), SuggestedFixes: v.fix(h),
		Message: fmt.Sprintf("the %s of %s is dropped: %s", h.kind.noun, h.source(), h.kind.lost)})
}

func (v *checker) reportPath(h *hold, l *leak) {
	what, fixes := "its next assignment", []analysis.SuggestedFix(nil)
	if !l.reassigned {
		what, fixes = "the return", v.fix(h)
	}
	v.report(analysis.Diagnostic{Pos: h.ident.Pos(), End: h.ident.End(), SuggestedFixes: fixes,
		Message: fmt.Sprintf(h.kind.missing+" on a path to %[2]s in line %[3]d; %[4]s", h.ident.Name, what, v.Fset.Position(l.at.Pos()).Line, h.advice(l)),
		Related: []analysis.RelatedInformation{{Pos: l.at.Pos(), Message: "lost here"}}})
}

func (h *hold) advice(l *leak) string {
	switch {
	case l.reassigned:
		return fmt.Sprintf("call %s before it", h.kind.releaseCall(h.ident.Name))
	case h.status != nil:
		return fmt.Sprintf("defer %s after checking %s", h.kind.releaseCall(h.ident.Name), h.status.Name())
	}
	return fmt.Sprintf("defer %s", h.kind.releaseCall(h.ident.Name))
}

func (v *checker) report(d analysis.Diagnostic) {
	at := v.Fset.Position(d.Pos)
	if !v.ignored[line{at.Filename, at.Line}] {
		v.Report(d)
	}
}

// A line is a line of a file.
type line struct {
	file string
	no   int
}

var ignoreComment = regexp.MustCompile(`^//semavet:ignore\b(.*)$`)

// ignoreComments returns the lines whose reports a comment suppresses: its own
// and the next. A comment without a reason suppresses nothing.
var ignoreComments = &analysis.Analyzer{
	Name:       "ignorecomments",
	Doc:        "find the comments that suppress reports",
	ResultType: reflect.TypeFor[map[line]bool](),
	Run: func(pass *analysis.Pass) (any, error) {
		ignored := map[line]bool{}
		for c, reason := range ignoreCommentsOf(pass) {
			if reason != "" {
				at := pass.Fset.Position(c.Pos())
				ignored[line{at.Filename, at.Line}] = true
				ignored[line{at.Filename, at.Line + 1}] = true
			}
		}
		return ignored, nil
	},
}

// reportBareComments reports the comments without a reason.
func (v *checker) reportBareComments() {
	for c, reason := range ignoreCommentsOf(v.Pass) {
		if reason == "" {
			v.Report(analysis.Diagnostic{Pos: c.Pos(), End: c.End(), Message: "semavet:ignore requires a reason: //semavet:ignore <why it may be dropped>"})
		}
	}
}

// ignoreCommentsOf yields the comments that suppress reports, with the reason.
func ignoreCommentsOf(pass *analysis.Pass) iter.Seq2[*ast.Comment, string] {
	return func(yield func(*ast.Comment, string) bool) {
		for _, file := range pass.Files {
			for _, group := range file.Comments {
				for _, c := range group.List {
					if m := ignoreComment.FindStringSubmatch(c.Text); m != nil && !yield(c, strings.TrimSpace(m[1])) {
						return
					}
				}
			}
		}
	}
}
