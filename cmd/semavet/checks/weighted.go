package checks

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// Weighted finds releases of a [sema.Weighted], or of the Weighted of
// golang.org/x/sync that it replaces, that do not match the acquires. Its Release
// has a weight of its own and belongs to no acquire, so it can release too much,
// too little, or nothing. Weighted reports
//
//   - a Release of more than was acquired, or after an acquire that failed;
//   - a Release of less than was acquired: Acquire(ctx, 3) and Release(1);
//   - a Release that is missing on some path, or in the whole package;
//   - a Release without an acquire in the whole package;
//   - a Release deferred in a loop that acquires.
//
// Weights are compared if they are constants, or the same expression. Permits
// may be acquired by one function and released by another. Where a package does
// that, Weighted reports little: a path that returns an error and does not
// release, in a function that releases otherwise.
//
// [sema.Weighted]: https://pkg.go.dev/github.com/sema-go/sema#Weighted
var Weighted = &analysis.Analyzer{
	Name: "weighted",
	Doc: `find releases of Weighted that do not match its acquires

It reports a Release of a Weighted of more or less than was acquired, after an
acquire that failed, that is missing on some path, or that is deferred in a loop.
It applies to golang.org/x/sync/semaphore as well.` + howToIgnore,
	URL:      homePage,
	Run:      runWeighted,
	Requires: requirements,
}

func runWeighted(pass *analysis.Pass) (any, error) {
	v := newChecker(pass)
	s := v.weightedCalls()
	for _, a := range s.acquires {
		if includeTests || !inTestFile(pass, a.call) {
			v.checkAcquire(s, a)
		}
	}
	for _, r := range s.releases {
		if (includeTests || !inTestFile(pass, r.call)) && v.isComplete(s, r.semaphore.id) && !s.has(s.acquires, r.semaphore.id) {
			v.reportRelease(r, "%s releases what nothing acquires: the capacity grows, or it panics; acquire first")
		}
	}
	return nil, nil
}

// checkAcquire reports the first mistake in the releases of an acquire.
func (v *checker) checkAcquire(s *census, a *weightedCall) {
	if !s.has(s.releases, a.semaphore.id) {
		if fn, _ := v.function(a.cursor); a.method == "Acquire" && v.isComplete(s, a.semaphore.id) && fn.Valid() && !isMain(v.Pass, fn) {
			v.reportAcquire(a, "what %s acquires is never released; defer its Release after checking the error", a.call)
		}
		return
	}
	if d := v.deferInLoop(s, a); d != nil {
		v.reportRelease(d, "this defer keeps what every iteration acquires until the function returns; call %s in the loop, or move the loop body into a function")
		return
	}
	if v.accumulates(s, a) {
		return
	}
	repeated := v.isRepeated(s, a)
	received := v.isPassed(s, a, s.acquires, s.releases)
	if search := v.searchTally(a, false); search != nil {
		switch {
		case search.over == nil:
			if v.checkExits(s, search) {
				return
			}
		case !received && !repeated:
			v.reportRelease(search.over, "%s releases more than the "+types.ExprString(a.weight)+" that this path acquired: what others hold is released")
			return
		}
	}
	if _, inLoop := enclosingLoop(a.cursor); received || a.ignored || repeated || inLoop {
		return
	}
	if search := v.searchTally(a, true); search != nil && search.over != nil {
		v.reportRelease(search.over, "%s also runs if "+types.ExprString(a.call.Fun)+" failed: what others hold is released; release only after it succeeded")
	}
}

// checkExits reports a path on which too little is released. It returns true if
// it found one.
func (v *checker) checkExits(s *census, search *tallySearch) bool {
	a := search.acquire
	if isMain(v.Pass, search.fn) {
		return false
	}
	passed := v.isPassed(s, a, s.releases, s.acquires)
	releases := slices.ContainsFunc(search.exits, func(e exit) bool { return e.tally.total() > 0 })
	succeeds := slices.ContainsFunc(search.exits, func(e exit) bool { return e.tally.total() == search.amount && !e.failed })
	for _, e := range search.exits {
		what := fmt.Sprintf("the return in line %d", v.Fset.Position(e.at.Pos()).Line)
		if e.at == a.statement {
			what = "the next iteration"
		}
		switch total := e.tally.total(); {
		case total == search.amount:
		case total > 0 && !passed:
			v.reportAcquire(a, "%s acquires "+types.ExprString(a.weight)+", of which "+types.ExprString(e.tally.last.weight)+" is released on a path to "+what+"; release as much as was acquired", a.call.Fun)
			return true
		case total == 0 && releases && (!passed || e.failed && succeeds && !e.tally.calls):
			v.reportAcquire(a, "what %s acquires is not released on a path to "+what+"; defer its Release after checking the error", a.call)
			return true
		}
	}
	return false
}

// deferInLoop returns a Release that is deferred in the loop that acquires; nil
// if there is none, or each iteration uses another semaphore.
func (v *checker) deferInLoop(s *census, a *weightedCall) *weightedCall {
	loop, ok := enclosingLoop(a.cursor)
	if !ok || slices.ContainsFunc(a.semaphore.of, func(o types.Object) bool { return !isField(o) && isWithin(o.Pos(), loop.Node()) }) {
		return nil
	}
	_, graph := v.function(a.cursor)
	for _, r := range s.releases {
		d, ok := r.cursor.Parent().Node().(*ast.DeferStmt)
		if ok && graph != nil && r.semaphore.key == a.semaphore.key && isWithin(r.call.Pos(), loop.Node()) && isInCycle(graph, d, nil) {
			return r
		}
	}
	return nil
}

func isField(o types.Object) bool {
	v, ok := o.(*types.Var)
	return ok && v.IsField()
}

// accumulates reports whether a loop acquires or releases several times what is
// released or acquired at once, so that the numbers on one path mean nothing.
func (v *checker) accumulates(s *census, a *weightedCall) bool {
	loop, inLoop := enclosingLoop(a.cursor)
	return slices.ContainsFunc(s.releases, func(r *weightedCall) bool {
		other, ok := enclosingLoop(r.cursor)
		return r.fn == a.fn && r.semaphore.key == a.semaphore.key && (ok != inLoop || ok && other != loop)
	})
}

// isRepeated reports whether a function acquires a semaphore more than once, so
// that one acquire may fail after another succeeded, and a Release may be that of
// both.
func (v *checker) isRepeated(s *census, a *weightedCall) bool {
	return slices.ContainsFunc(s.acquires, func(b *weightedCall) bool {
		return b != a && b.fn == a.fn && b.semaphore.id == a.semaphore.id
	})
}

// reportAcquire reports at an acquire. The format has one verb, for the call.
func (v *checker) reportAcquire(a *weightedCall, format string, call ast.Expr) {
	v.report(analysis.Diagnostic{Pos: a.call.Pos(), End: a.call.End(), Message: fmt.Sprintf(format, types.ExprString(call))})
}

// reportRelease reports at a Release. The format has one verb, for the call.
func (v *checker) reportRelease(r *weightedCall, format string) {
	v.report(analysis.Diagnostic{Pos: r.call.Pos(), End: r.call.End(), Message: fmt.Sprintf(format, types.ExprString(r.call))})
}
