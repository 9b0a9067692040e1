// Package dropped is an analyzer that finds permits nobody will release. A
// permit that is dropped is gone until the process ends, and when the last one
// is, everybody waits. It reports
//
//   - a permit that is thrown away: s.Acquire(ctx, 1) as a statement, or
//     _, err := s.Acquire(ctx, 1);
//   - a permit that is not released on some path to a return, or to the next
//     round of a loop that acquires anew;
//   - a Release deferred in a loop that acquires: all of them wait for the end
//     of the function;
//   - a ticket of [sema.Semaphore.Request] that is neither cancelled nor asked
//     for its permit on some path;
//   - the cancel function of [sema.Permit.Context], if it is dropped or not
//     called on some path;
//   - a TryAcquire of [sema.Weighted] or [sema.Spin] whose answer is ignored.
//
// What is returned, stored, sent, captured by a function literal or passed to a
// function is that one's to release. A path on which the error that came with
// the permit is known not to be nil has no permit to release. Where it cannot
// tell, the analyzer is silent: what it reports is worth a look.
//
// A comment at the line, or above it, silences a report. It demands a reason:
//
//	//semavet:ignore the process ends with it
//
// Tests drop permits on purpose, to fill a semaphore or to be refused, so test
// files are looked at only with -include-tests.
//
// It does not replace the leak reports of [sema.Diagnose], which see at run time
// what was stored and forgotten.
//
// [sema.Semaphore.Request]: https://pkg.go.dev/github.com/sema-go/sema#Semaphore.Request
// [sema.Permit.Context]: https://pkg.go.dev/github.com/sema-go/sema#Permit.Context
// [sema.Weighted]: https://pkg.go.dev/github.com/sema-go/sema#Weighted
// [sema.Spin]: https://pkg.go.dev/github.com/sema-go/sema#Spin
// [sema.Diagnose]: https://pkg.go.dev/github.com/sema-go/sema#Diagnose
package dropped

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// Analyzer finds permits that are dropped.
var Analyzer = &analysis.Analyzer{
	Name: "semavet",
	Doc: `find permits of github.com/sema-go/sema that are dropped

It reports permits that are thrown away or not released on some path, a Release
deferred in a loop, tickets that are neither cancelled nor asked for their permit,
dropped cancel functions of Permit.Context, and ignored answers of TryAcquire.

A comment "//semavet:ignore reason" at the line, or above it, silences a report.`,
	URL:       "https://github.com/sema-go/sema/blob/main/docs/semavet.md",
	Run:       run,
	Requires:  []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	FactTypes: []analysis.Fact{new(handsOver)},
}

var includeTests bool

func init() {
	Analyzer.Flags.BoolVar(&includeTests, "include-tests", false, "look at _test.go files, too, where permits are often dropped on purpose")
}

func run(pass *analysis.Pass) (any, error) {
	v := &vetter{
		Pass:   pass,
		graphs: pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs),
		ignore: ignoredLines(pass),
	}
	root := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root()
	v.findHandovers(root)
	for call := range root.Preorder((*ast.CallExpr)(nil)) {
		if !includeTests && inTestFile(pass, call.Node()) {
			continue
		}
		v.checkAnswer(call)
		for _, h := range v.handedOut(call) {
			v.check(h)
		}
	}
	return nil, nil
}

// A vetter looks at one package.
type vetter struct {
	*analysis.Pass
	graphs *ctrlflow.CFGs
	ignore map[line]bool
}

// check looks for one way in which h is dropped.
func (v *vetter) check(h *hold) {
	if h.statement == nil {
		v.reportThrown(h)
		return
	}
	fn, graph := v.function(h.call)
	if graph == nil || h.name != nil && !v.isOwnVariable(h, fn) {
		return
	}
	p := newPaths(v.Pass, h, fn, graph)
	switch leak := p.findLeak(); {
	case leak == nil:
		if h.kind == permit && h.name != nil && !inTestFile(v.Pass, h.statement) {
			v.checkLoop(h, graph)
		}
	case h.name == nil:
		v.reportThrown(h)
	default:
		v.reportPath(h, leak)
	}
}

// function is what a node is in: a declaration or literal, and its flow.
func (v *vetter) function(c inspector.Cursor) (inspector.Cursor, *cfg.CFG) {
	for fn := range c.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		switch n := fn.Node().(type) {
		case *ast.FuncDecl:
			return fn, v.graphs.FuncDecl(n)
		case *ast.FuncLit:
			return fn, v.graphs.FuncLit(n)
		}
	}
	return inspector.Cursor{}, nil
}

// isOwnVariable reports whether what becomes of the variable can be seen: it is
// of this function, and nobody else gets at it but through what follows the
// statement. One that was declared before may have a deferred literal that
// releases it, or an address that is known elsewhere.
func (v *vetter) isOwnVariable(h *hold, fn inspector.Cursor) bool {
	if pos := h.name.Pos(); pos < fn.Node().Pos() || pos >= fn.Node().End() {
		return false
	}
	if v.TypesInfo.Defs[h.ident] != nil {
		return true
	}
	for use := range fn.Preorder((*ast.Ident)(nil)) {
		if v.TypesInfo.Uses[use.Node().(*ast.Ident)] == h.name && isShared(use, fn) {
			return false
		}
	}
	return true
}

// isShared reports whether a mention of a variable of fn is in a literal within
// it, or takes its address.
func isShared(use, fn inspector.Cursor) bool {
	if u, ok := use.Parent().Node().(*ast.UnaryExpr); ok && u.Op == token.AND {
		return true
	}
	for within := range use.Enclosing((*ast.FuncLit)(nil)) {
		if within == fn {
			break
		}
		if isWithin(within.Node().Pos(), fn.Node()) {
			return true
		}
	}
	return false
}

func inTestFile(pass *analysis.Pass, n ast.Node) bool {
	return strings.HasSuffix(pass.Fset.Position(n.Pos()).Filename, "_test.go")
}

// checkAnswer reports a try of a semaphore without permits whose answer nobody
// looks at: a Release that follows gives back what others hold.
func (v *vetter) checkAnswer(c inspector.Cursor) {
	call := c.Node().(*ast.CallExpr)
	callee := calleeOf(v.TypesInfo, call)
	if callee == nil || callee.Name() != "TryAcquire" || !isMethodOf(callee, "Weighted", "Spin") {
		return
	}
	switch s := c.Parent().Node().(type) {
	case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
	case *ast.AssignStmt:
		if id, ok := s.Lhs[0].(*ast.Ident); len(s.Lhs) != 1 || !ok || id.Name != "_" {
			return
		}
	default:
		return
	}
	v.report(analysis.Diagnostic{Pos: call.Pos(), End: call.End(),
		Message: "the answer of " + types.ExprString(call.Fun) + " is ignored: if it was false nothing was acquired, and a Release gives back what others hold; use it as a condition"})
}
