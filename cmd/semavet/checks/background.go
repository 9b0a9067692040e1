package checks

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// Background finds acquires that wait with context.Background() or
// context.TODO(). Such a wait ends neither with the request that it is part of
// nor at a deadline. It reports nothing unless its flag where is set:
//
//   - requests: in functions that have a context or an *http.Request;
//   - all: in all functions except main and init.
var Background = &analysis.Analyzer{
	Name: "background",
	Doc: `find acquires that wait with context.Background()

The wait ends neither with the request that it is part of nor at a deadline.
It is opt-in: without -background.where it reports nothing, even if -background
selects it. Set -background.where=requests to check functions that have a
context.Context or an *http.Request as a parameter, and -background.where=all to
check all functions except main and init.` + howToIgnore,
	URL:      homePage,
	Run:      runBackground,
	Requires: requirements,
}

// backgroundWhere is where Background checks.
var backgroundWhere = choice{values: []string{"none", "requests", "all"}}

func init() {
	Background.Flags.Var(&backgroundWhere, "where", "check acquires in: none, requests (functions with a context or an *http.Request), all")
}

func runBackground(pass *analysis.Pass) (any, error) {
	if backgroundWhere.is("none") {
		return nil, nil
	}
	v := newChecker(pass)
	for c, call := range v.calls {
		if len(call.Args) == 0 || !isContext(v.TypesInfo.TypeOf(call.Args[0])) || !v.waits(call) {
			continue
		}
		if isEmptyContext(v.TypesInfo, call.Args[0]) || v.neverEnds(call.Args[0]) {
			v.checkBackground(c, call)
		}
	}
	return nil, nil
}

// waits reports whether a call is an acquire that may wait.
func (v *checker) waits(call *ast.CallExpr) bool {
	if fn := calleeOf(v.TypesInfo, call); fn == nil || strings.HasPrefix(fn.Name(), "Try") {
		return false
	} else if (isWeighted(fn) || isMethodOf(fn, semaPath, "Spin")) && fn.Name() == "Acquire" {
		return true
	}
	return v.statusOf(call) != nil
}

func (v *checker) checkBackground(c inspector.Cursor, call *ast.CallExpr) {
	ctx := call.Args[0]
	d := analysis.Diagnostic{Pos: ctx.Pos(), End: ctx.End(),
		Message: types.ExprString(call.Fun) + " waits with " + types.ExprString(ctx) + ", which never ends; "}
	param, expression := v.requestContext(c)
	switch {
	case param != nil:
		d.Message += "pass " + expression
		if _, found := v.Pkg.Scope().Innermost(call.Pos()).LookupParent(param.Name(), call.Pos()); found == param {
			d.SuggestedFixes = []analysis.SuggestedFix{{Message: "Pass " + expression,
				TextEdits: []analysis.TextEdit{{Pos: ctx.Pos(), End: ctx.End(), NewText: []byte(expression)}}}}
		}
	case backgroundWhere.is("all") && !v.isStart(c):
		d.Message += "pass the caller's context, or one with a timeout"
	default:
		return
	}
	v.report(d)
}

// requestContext returns the innermost parameter that has the context of a
// request, and the expression for that context; nil if there is none.
func (v *checker) requestContext(c inspector.Cursor) (*types.Var, string) {
	for fn := range c.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		for p := range signatureOf(v.TypesInfo, fn.Node()).Params().Variables() {
			switch {
			case p.Name() == "" || p.Name() == "_":
			case isContext(p.Type()):
				return p, p.Name()
			case isNamed(pointedTo(p.Type()), "net/http", "Request"):
				return p, p.Name() + ".Context()"
			}
		}
	}
	return nil, ""
}

// isStart reports whether a node is in main or init, where no other context
// exists.
func (v *checker) isStart(c inspector.Cursor) bool {
	fn, _ := v.function(c)
	if !fn.Valid() {
		return true // the value of a package variable
	}
	d, ok := fn.Node().(*ast.FuncDecl)
	return ok && d.Recv == nil && (d.Name.Name == "init" || isMain(v.Pass, fn))
}
