package checks

import (
	"go/ast"
	"reflect"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// Dropped finds values that must be released and are not. A dropped permit is
// missing until the process ends. When the last permit is missing, all acquires
// block. Dropped reports
//
//   - a permit that is discarded: s.Acquire(ctx, 1) as a statement, or
//     _, err := s.Acquire(ctx, 1);
//   - a permit that is not released on some path to a return, or to the next
//     iteration of a loop that acquires again;
//   - a Release deferred in a loop that acquires: all of them run only when the
//     function returns;
//   - an item of a [pool.Pool] that is dropped in one of these ways;
//   - a ticket of [sema.Semaphore.Request] of which neither Cancel nor Permit is
//     called on some path;
//   - the cancel function of [sema.Permit.Context], if it is discarded or not
//     called on some path.
//
// A value that is returned, stored, sent, captured by a function literal or
// passed to a function is no longer the function's to release. A path on which
// the error that came with the value is known to be non-nil has nothing to
// release.
//
// It does not replace the leak reports of [sema.Diagnose], which detect at run
// time permits that were stored and never released.
//
// [pool.Pool]: https://pkg.go.dev/github.com/sema-go/sema/pool#Pool
// [sema.Semaphore.Request]: https://pkg.go.dev/github.com/sema-go/sema#Semaphore.Request
// [sema.Permit.Context]: https://pkg.go.dev/github.com/sema-go/sema#Permit.Context
// [sema.Diagnose]: https://pkg.go.dev/github.com/sema-go/sema#Diagnose
var Dropped = &analysis.Analyzer{
	Name: "dropped",
	Doc: `find permits of github.com/sema-go/sema that are never released

It reports permits and items of a pool that are discarded or not released on
some path, a Release deferred in a loop, tickets of which neither Cancel nor
Permit is called, and discarded cancel functions of Permit.Context.` + howToIgnore,
	URL:        homePage,
	Run:        runDropped,
	Requires:   requirements,
	FactTypes:  []analysis.Fact{new(handsOver)},
	ResultType: reflect.TypeFor[[]*hold](), // the holds that are not dropped, for other analyzers
}

func runDropped(pass *analysis.Pass) (any, error) {
	v := newChecker(pass)
	v.reportBareComments()
	v.findHandovers(v.root)
	var kept []*hold
	for c := range v.calls {
		for _, h := range v.holdsOf(c) {
			if v.checkDropped(h) {
				kept = append(kept, h)
			}
		}
	}
	return kept, nil
}

// checkDropped reports the first way in which h is dropped. It returns true if
// there is none.
func (v *checker) checkDropped(h *hold) (kept bool) {
	if h.statement == nil {
		v.reportDiscarded(h)
		return false
	}
	fn, graph := v.function(h.call)
	if graph == nil || h.name != nil && !v.isOwnVariable(h, fn) {
		return false
	}
	switch leak := findLeak(v.Pass, h, fn, graph); {
	case leak == nil:
		if h.kind.isGranted() && h.name != nil && !inTestFile(v.Pass, h.statement) {
			v.checkLoop(h, graph)
		}
		return true
	case h.name == nil:
		v.reportDiscarded(h)
	default:
		v.reportPath(h, leak)
	}
	return false
}

// isOwnVariable reports whether all uses of the variable are visible: it
// belongs to this function and is accessible only through what follows the
// statement. A variable that was declared earlier may be released by a deferred
// literal, or its address may be stored elsewhere.
func (v *checker) isOwnVariable(h *hold, fn inspector.Cursor) bool {
	return v.TypesInfo.Defs[h.ident] != nil && isWithin(h.name.Pos(), fn.Node()) || v.isOwn(h.name, fn)
}

// isStatement reports whether the result of a call is discarded because the
// call is a statement.
func isStatement(parent ast.Node) bool {
	switch parent.(type) {
	case *ast.ExprStmt, *ast.GoStmt, *ast.DeferStmt:
		return true
	}
	return false
}
