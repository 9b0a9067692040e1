// Package checks has the analyzers of semavet, which find mistakes in the use of
// Sema: a permit that is never released, an error of an acquire that is ignored.
//
// If an analyzer cannot decide, it reports nothing, so every report is worth a
// look. A comment on the line, or above it, suppresses a report. It requires a
// reason:
//
//	//semavet:ignore the process ends with it
//
// Tests make such mistakes on purpose, to fill a semaphore or to provoke an
// error, so test files are checked only with -include-tests.
package checks

import (
	"flag"
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

// Analyzers are all analyzers of semavet.
var Analyzers = []*analysis.Analyzer{Dropped, Ignored, Undeferred, Weighted, Background}

var includeTests bool

// AddFlags adds the flags that apply to all analyzers.
func AddFlags(to *flag.FlagSet) {
	to.BoolVar(&includeTests, "include-tests", false, "also check _test.go files, where such mistakes are often made on purpose")
}

const homePage = "https://github.com/sema-go/sema/blob/main/docs/semavet.md"

const howToIgnore = `

A comment "//semavet:ignore reason" on the line, or above it, suppresses a report.`

// A checker checks one package.
type checker struct {
	*analysis.Pass
	root    inspector.Cursor
	graphs  *ctrlflow.CFGs
	ignored map[line]bool
}

func newChecker(pass *analysis.Pass) *checker {
	return &checker{
		Pass:    pass,
		root:    pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).Root(),
		graphs:  pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs),
		ignored: pass.ResultOf[ignoreComments].(map[line]bool),
	}
}

// requirements are the analyzers whose results newChecker reads.
var requirements = []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer, ignoreComments}

// calls yields the calls of the package that are to be checked.
func (v *checker) calls(yield func(c inspector.Cursor, call *ast.CallExpr) bool) {
	for c := range v.root.Preorder((*ast.CallExpr)(nil)) {
		if (includeTests || !inTestFile(v.Pass, c.Node())) && !yield(c, c.Node().(*ast.CallExpr)) {
			return
		}
	}
}

// function returns the function declaration or literal that contains a node,
// and its control-flow graph.
func (v *checker) function(c inspector.Cursor) (inspector.Cursor, *cfg.CFG) {
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

// isOwn reports whether a variable belongs to fn, and no literal within fn
// mentions it or uses its address.
func (v *checker) isOwn(of *types.Var, fn inspector.Cursor) bool {
	if !isWithin(of.Pos(), fn.Node()) {
		return false
	}
	for use := range fn.Preorder((*ast.Ident)(nil)) {
		if v.TypesInfo.Uses[use.Node().(*ast.Ident)] == of && isShared(use, fn) {
			return false
		}
	}
	return true
}

// isShared reports whether a mention of a variable of fn is inside a literal
// within fn, or takes the variable's address.
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
