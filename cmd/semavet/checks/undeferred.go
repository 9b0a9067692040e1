package checks

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// Undeferred finds a Release that is not deferred, so that a panic between the
// acquire and the Release loses the permit. A panic that ends the process loses
// nothing. So by default Undeferred checks only functions whose panics are
// recovered: HTTP handlers, because net/http recovers, functions that defer a
// literal that calls recover, and what they call in their package. The flag where
// selects more:
//
//   - recovered: the default;
//   - calls: all functions, if a call lies between the acquire and the Release;
//   - all: every Release, in the function that acquired, that is not deferred.
//
// It applies to permits, to items of a pool, and to Weighted.
var Undeferred = &analysis.Analyzer{
	Name: "undeferred",
	Doc: `find permits whose Release is not deferred

A panic between the acquire and the Release loses the permit. By default only
functions are checked whose panics are recovered: HTTP handlers, functions that
call recover, and those of the package that they call.
-undeferred.where=calls checks all functions for a Release after a call that may
panic; -undeferred.where=all reports every Release that is not deferred in the
function that acquired.` + howToIgnore,
	URL:      homePage,
	Run:      runUndeferred,
	Requires: append([]*analysis.Analyzer{Dropped}, requirements...),
}

// undeferredWhere is where Undeferred checks.
var undeferredWhere = choice{values: []string{"recovered", "calls", "all"}}

func init() {
	Undeferred.Flags.Var(&undeferredWhere, "where", "check: recovered (functions whose panics are recovered), calls (all functions, after a call), all (every Release)")
}

func runUndeferred(pass *analysis.Pass) (any, error) {
	v := newChecker(pass)
	recovered := v.findRecoveries()
	for _, h := range pass.ResultOf[Dropped].([]*hold) {
		if h.kind.isGranted() && h.name != nil {
			v.checkUndeferred(recovered, h.call, h.status, h.statement, &holdRelease{v, h})
		}
	}
	for _, a := range v.weightedCalls().acquires {
		if a.statement != nil && (includeTests || !inTestFile(pass, a.call)) {
			v.checkUndeferred(recovered, a.cursor, a.status, a.statement, &weightedRelease{v, a})
		}
	}
	return nil, nil
}

// A releaser recognizes what ends a hold.
type releaser interface {
	ends(p *paths, n ast.Node) bool   // n releases or transfers it, or may do so
	releases(call *ast.CallExpr) bool // the call is its Release
	fix() []analysis.SuggestedFix
}

type holdRelease struct {
	*checker
	hold *hold
}

func (r *holdRelease) ends(p *paths, n ast.Node) bool {
	return endsHold(p, r.hold, n) || assigns(p.info, n, r.hold.name)
}

func (r *holdRelease) releases(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(r.hold.kind.releases, s.Sel.Name) && isVar(r.TypesInfo, s.X, r.hold.name)
}

// fix suggests a defer beside the Release, which may be repeated.
func (r *holdRelease) fix() []analysis.SuggestedFix { return r.checker.fix(r.hold) }

type weightedRelease struct {
	*checker
	acquire *weightedCall
}

func (r *weightedRelease) ends(_ *paths, n ast.Node) bool {
	return r.acquire.statement == n || r.mentionsSemaphore(n, r.acquire.semaphore)
}

func (r *weightedRelease) releases(call *ast.CallExpr) bool {
	c := r.weightedCall(call)
	return c != nil && c.method == "Release" && c.semaphore.key == r.acquire.semaphore.key
}

// fix suggests nothing: a defer beside the Release of a Weighted would release
// twice.
func (r *weightedRelease) fix() []analysis.SuggestedFix { return nil }

// risk is the call on a path that may panic.
type risk struct{ call *ast.CallExpr }

func (r risk) String() string { return fmt.Sprint(r.call.Pos()) }

// checkUndeferred reports the first Release on a path from an acquire that is
// not deferred, after a call that may panic.
func (v *checker) checkUndeferred(recovered recoveries, c inspector.Cursor, status *types.Var, statement ast.Node, of releaser) {
	fn, graph := v.function(c)
	recovery := recovered.of(fn)
	if graph == nil || recovery == "" && undeferredWhere.is("recovered") || v.defersRelease(fn, of) {
		return
	}
	p := newPaths(v.TypesInfo, c, fn, graph, status)
	var release *ast.CallExpr
	var between *risk
	p.visit = func(n ast.Node, k *state) (found, done bool) {
		if of.ends(p, n) {
			release = releaseIn(n, of)
			if r, ok := k.note.(risk); ok {
				between = &r
			}
			return release != nil && (between != nil || undeferredWhere.is("all")), true
		}
		if call := v.mayPanic(n); call != nil && k.note == nil && (status == nil || k.confirmed) {
			k.note = risk{call}
		}
		return false, false
	}
	start := p.initialState()
	start.confirmed = status == nil
	if found, err := p.from(statement, start); found && err == nil {
		v.reportUndeferred(c, of, release, between, recovery)
	}
}

func (v *checker) reportUndeferred(c inspector.Cursor, of releaser, release *ast.CallExpr, between *risk, recovery string) {
	d := analysis.Diagnostic{Pos: release.Pos(), End: release.End(), Message: types.ExprString(release.Fun) + " is not deferred: "}
	if between == nil {
		d.Message += "a panic would skip it"
	} else {
		d.Message += fmt.Sprintf("a panic in %s in line %d would skip it", types.ExprString(between.call.Fun), v.Fset.Position(between.call.Pos()).Line)
		d.Related = []analysis.RelatedInformation{{Pos: between.call.Pos(), End: between.call.End(), Message: "may panic"}}
	}
	if recovery != "" {
		d.Message += ", and " + recovery + " recovers"
	}
	if _, inLoop := enclosingLoop(c); inLoop {
		d.Message += "; move the loop body into a function that defers it"
	} else {
		d.Message += "; defer it after the acquire"
		d.SuggestedFixes = of.fix()
	}
	v.report(d)
}

// releaseIn returns the Release in a statement, nil if the statement does
// something else.
func releaseIn(n ast.Node, of releaser) *ast.CallExpr {
	s, ok := n.(*ast.ExprStmt)
	if !ok {
		return nil
	}
	if call, ok := s.X.(*ast.CallExpr); ok && of.releases(call) {
		return call
	}
	return nil
}

// defersRelease reports whether a function defers the Release somewhere, also
// inside a literal.
func (v *checker) defersRelease(fn inspector.Cursor, of releaser) bool {
	for d := range fn.Preorder((*ast.DeferStmt)(nil)) {
		found := false
		ast.Inspect(d.Node(), func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			found = found || ok && of.releases(call)
			return !found
		})
		if found {
			return true
		}
	}
	return false
}

// calm are packages whose functions do not panic in correct programs.
var calm = []string{"context", "errors", "fmt", "log", "log/slog", "math", "strconv", "strings", "sync", "sync/atomic", "time", semaPath, poolPath}

// mayPanic returns the first call in a node that may panic, nil if there is
// none. Deferred calls and those of a new goroutine do not count.
func (v *checker) mayPanic(n ast.Node) (first *ast.CallExpr) {
	switch n.(type) {
	case *ast.DeferStmt, *ast.GoStmt:
		return nil
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok || first != nil {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || v.TypesInfo.Types[call.Fun].IsType() || v.TypesInfo.Types[call.Fun].IsBuiltin() {
			return true
		}
		fn := calleeOf(v.TypesInfo, call)
		if fn == nil || fn.Pkg() != nil && !slices.Contains(calm, fn.Pkg().Path()) { // without a package: error.Error
			first = call
		}
		return first == nil
	})
	return first
}
