package checks

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"
)

// A tally counts on a path how much of an acquire has been released.
type tally struct {
	released, deferred int64
	calls              bool // functions of the package were called, which may release
	last               *weightedCall
}

func (t tally) String() string { return fmt.Sprint(t.released, t.deferred, t.calls) }

func (t tally) total() int64 { return t.released + t.deferred }

// An exit is where a path ends: a return, or the next acquire in a loop.
type exit struct {
	at     ast.Node
	tally  tally
	failed bool // it returns an error that is not nil
}

// A tallySearch follows the paths from an acquire of a Weighted and tallies its
// releases.
type tallySearch struct {
	*checker
	*paths
	acquire *weightedCall
	unit    string
	amount  int64

	exits []exit
	over  *weightedCall // the release that exceeds what was acquired
}

// searchTally returns what happens on the paths on which an acquire succeeds, or
// fails; nil if that is unknown.
func (v *checker) searchTally(a *weightedCall, failed bool) *tallySearch {
	fn, graph := v.function(a.cursor)
	if a.statement == nil || graph == nil || a.status != nil && !v.isOwn(a.status, fn) {
		return nil
	}
	s := &tallySearch{checker: v, paths: newPaths(v.TypesInfo, a.cursor, fn, graph, a.status), acquire: a}
	var ok bool
	if s.unit, s.amount, ok = v.amountOf(a.weight); !ok {
		return nil
	}
	start := s.initialState()
	start.confirmed = a.ignored && !failed
	start.note = tally{}
	early, isDeferred := s.deferredBefore()
	switch {
	case failed:
		s.failed, s.visit = true, s.visitFailure
		start.note = early
	case isDeferred:
		return nil // how much the earlier defer releases is decided later
	default:
		s.visit = s.visitSuccess
	}
	if _, err := s.from(a.statement, start); err != nil {
		return nil
	}
	return s
}

// visitSuccess tallies the releases after an acquire that succeeded.
func (s *tallySearch) visitSuccess(n ast.Node, k *state) (found, done bool) {
	t := k.note.(tally)
	if n == s.acquire.statement {
		s.end(exit{at: n, tally: t}, k)
		return false, true
	}
	if r, ok := n.(*ast.ReturnStmt); ok && !s.mentionsSemaphore(n, s.acquire.semaphore) {
		s.end(exit{r, t, s.returnsError(r, k)}, k)
		return false, true
	}
	if s.isDoubtful(n, k) {
		return false, true
	}
	t.calls = t.calls || s.callsOwn(n)
	k.note = t
	if !s.mentionsSemaphore(n, s.acquire.semaphore) {
		return false, false
	}
	release, deferred := s.releaseIn(n)
	if release == nil {
		return false, true // acquired again, or passed on
	}
	unit, amount, ok := s.amountOf(release.weight)
	if !ok || unit != s.unit {
		return false, true
	}
	if deferred {
		t.deferred += amount
	} else {
		t.released += amount
	}
	t.last = release
	k.note = t
	if t.total() > s.amount && k.confirmed {
		s.over = release
		return true, true
	}
	return false, false
}

// end records the end of a path on which the acquire certainly succeeded.
func (s *tallySearch) end(e exit, k *state) {
	if k.confirmed {
		s.exits = append(s.exits, e)
	}
}

// visitFailure finds a release after an acquire that failed.
func (s *tallySearch) visitFailure(n ast.Node, k *state) (found, done bool) {
	t := k.note.(tally)
	if _, ok := n.(*ast.ReturnStmt); ok {
		if k.confirmed && t.deferred > 0 {
			s.over = t.last
		}
		return s.over != nil, true
	}
	if s.isDoubtful(n, k) {
		return false, true
	}
	if !s.mentionsSemaphore(n, s.acquire.semaphore) {
		return false, false
	}
	release, deferred := s.releaseIn(n)
	switch {
	case release == nil:
		return false, true
	case deferred:
		k.note = tally{deferred: 1, last: release}
	case k.confirmed:
		s.over = release
		return true, true
	}
	return false, false
}

// isDoubtful reports whether what follows n is unknown: the status is copied,
// the weight changes, or a test has failed.
func (s *tallySearch) isDoubtful(n ast.Node, k *state) bool {
	if failsTest(s.info, n) || s.status != nil && !k.detached && !k.confirmed && obscuresStatus(s.info, n, s.status) {
		return true
	}
	_, of, _ := textOf(s.info, s.acquire.weight)
	return slices.ContainsFunc(of, func(o types.Object) bool {
		variable, ok := o.(*types.Var)
		return ok && assigns(s.info, n, variable)
	})
}

// releaseIn returns the release that a statement is, or defers; nil if it does
// anything else with the semaphore.
func (s *tallySearch) releaseIn(n ast.Node) (release *weightedCall, deferred bool) {
	var call *ast.CallExpr
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, _ = n.X.(*ast.CallExpr)
	case *ast.DeferStmt:
		if release = s.isLiteralOf(n, s.acquire.semaphore); release == nil {
			call = n.Call
		}
		deferred = true
	}
	if call != nil {
		release = s.weightedCall(call)
	}
	if release == nil || release.method != "Release" || release.semaphore.key != s.acquire.semaphore.key {
		return nil, deferred
	}
	return release, deferred
}

// deferredBefore returns the release that is deferred before the acquire, in a
// block around it; found is true even if the defer does something else with the
// semaphore as well.
func (s *tallySearch) deferredBefore() (release tally, found bool) {
	for c := range s.fn.Preorder((*ast.DeferStmt)(nil)) {
		d := c.Node().(*ast.DeferStmt)
		block, ok := c.Parent().Node().(*ast.BlockStmt)
		if in, _ := s.function(c); in != s.fn || d.Pos() > s.call.Node().Pos() || !s.mentionsSemaphore(d, s.acquire.semaphore) {
			continue
		}
		found = true
		if r, _ := s.releaseIn(d); r != nil && ok && isWithin(s.call.Node().Pos(), block) {
			release = tally{deferred: 1, last: r}
		}
	}
	return release, found
}

// callsOwn reports whether n calls a function of the package or a value, which
// may release.
func (s *tallySearch) callsOwn(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || s.info.Types[call.Fun].IsType() || s.info.Types[call.Fun].IsBuiltin() {
			return true
		}
		fn := calleeOf(s.info, call)
		found = found || fn == nil || fn.Pkg() == s.Pkg
		return !found
	})
	return found
}

// returnsError reports whether a return certainly returns an error that is not
// nil.
func (s *tallySearch) returnsError(r *ast.ReturnStmt, k *state) bool {
	if len(r.Results) == 0 {
		return false
	}
	last := ast.Unparen(r.Results[len(r.Results)-1])
	if !isError(s.info.TypeOf(last)) {
		return false
	}
	switch e := last.(type) {
	case *ast.CallExpr:
		fn := calleeOf(s.info, e)
		return fn != nil && (isFunction(fn, "errors", "New") || isFunction(fn, "fmt", "Errorf"))
	case *ast.Ident:
		of, ok := s.info.Uses[e].(*types.Var)
		if !ok {
			return false
		}
		if of.Parent() == s.Pkg.Scope() {
			return true
		}
		for text, f := range k.facts {
			if !f.holds && slices.Contains(f.of, types.Object(of)) && strings.HasPrefix(text, e.Name+" == nil ") {
				return true
			}
		}
	}
	return false
}
