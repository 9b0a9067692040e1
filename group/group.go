package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sema-go/sema"
)

// A Group runs functions in goroutines. Create it with [New]. Its methods may be called
// concurrently, by its functions too, but none after Wait has returned.
//
// Goroutines are reused. One that has finished a function may run the next one under the
// same permit, for up to 100 µs: tiny functions then cost less than a hand-off of the
// permit, and others that wait at the gate are served soon.
type Group struct {
	ctx       context.Context
	cancel    context.CancelCauseFunc
	gate      sema.Gate // nil: no bound
	all       bool      // AllErrors
	functions sync.WaitGroup
	failed    atomic.Bool // no function starts any more
	workers   workers

	mu       sync.Mutex // guards what follows
	errs     []error    // at most one without AllErrors
	panicked *Panic     // the first
	waited   bool       // Wait has waited for all functions
	failures int64      // functions that returned an error or panicked
}

// An Option configures [New].
type Option uint8

const (
	// AllErrors runs all functions even if some fail, and Wait returns all errors, joined.
	// Without it, the first error ends the group.
	AllErrors Option = iota + 1
)

// New returns a group whose functions need a permit of gate each. If gate is nil, there is
// no bound. The context of the functions ends when one of them fails, when Wait returns, or
// when ctx ends. New panics if ctx is nil.
//
// A group is used once. A function that is passed to Go after Wait does not run, and the next
// Wait returns an error that wraps [sema.ErrClosed].
func New(ctx context.Context, gate sema.Gate, opts ...Option) *Group {
	if ctx == nil {
		panic("group: New: nil context (hint: pass context.Background())")
	}
	g := &Group{gate: gate}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	for _, o := range opts {
		switch o {
		case AllErrors:
			g.all = true
		default:
			panic(fmt.Sprintf("group: New: unknown option %d", o))
		}
	}
	return g
}

// Context returns the context of the functions.
func (g *Group) Context() context.Context { return g.ctx }

// Go waits for a permit and then runs fn in a goroutine, which releases the permit when fn
// returns. If the group has failed or its context has ended, fn does not run. If the gate
// rejects the call, that is an error of the group.
//
// While functions take less than about 50 µs, Go does not wait for the permit of fn if fewer
// than 256 functions wait for theirs.
func (g *Group) Go(fn func(ctx context.Context) error) {
	if err := g.start(g.ctx, 1, fn, true); err != nil {
		g.fail(err)
	}
}

// GoN runs fn like Go, with n permits: what fn needs of a gate of bytes, for example. It
// always waits for them.
func (g *Group) GoN(n int64, fn func(ctx context.Context) error) {
	if err := g.start(g.ctx, n, fn, false); err != nil {
		g.fail(err)
	}
}

// TryGo runs fn like Go if a permit is free at once, and reports whether it does.
func (g *Group) TryGo(fn func(ctx context.Context) error) bool {
	mustHave(fn)
	if g.failed.Load() || g.ctx.Err() != nil {
		return false
	}
	p, err := g.tryAcquire(1)
	if err != nil {
		g.workers.rejected(err)
		return false
	}
	g.workers.run(g, p, fn)
	return true
}

// GoWithin runs fn like GoN, but waits for the permits only until ctx ends, too. It returns
// an error if fn does not run. That error is not one of the group, which goes on.
func (g *Group) GoWithin(ctx context.Context, n int64, fn func(ctx context.Context) error) error {
	if ctx == nil {
		return g.invalid("nil context", "")
	}
	return g.start(ctx, n, fn, false)
}

// start runs fn once n permits are acquired, unless ctx or the group ends before. With
// advance it may return before.
func (g *Group) start(ctx context.Context, n int64, fn func(ctx context.Context) error, advance bool) error {
	mustHave(fn)
	switch {
	case ctx.Err() != nil && ctx != g.ctx:
		return context.Cause(ctx)
	case g.ctx.Err() != nil:
		return g.over()
	case n < 0:
		return g.invalid(fmt.Sprintf("negative weight, %d", n), "pass a weight of 0 or more")
	case g.gate == nil || n == 0:
		g.workers.run(g, sema.Permit{}, fn)
		return nil
	}
	return g.workers.start(ctx, g, n, fn, advance)
}

// over returns why no function starts any more.
func (g *Group) over() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waited {
		return &sema.Error{Op: "group", Err: sema.ErrClosed, Detail: "Wait has returned, and the function does not run", Advice: "create a new group"}
	}
	return context.Cause(g.ctx)
}

// mustHave panics on a nil function, in the goroutine that passes it.
func mustHave(fn func(ctx context.Context) error) {
	if fn == nil {
		panic("group: the function is nil")
	}
}

// invalid returns an ErrInvalid that names the gate. Package sema has the advice for a nil
// context.
func (g *Group) invalid(detail, advice string) error {
	fault := &sema.Error{Op: "group", Err: sema.ErrInvalid, Detail: detail, Advice: advice}
	if named, ok := g.gate.(interface{ Name() string }); ok {
		fault.Name = named.Name()
	}
	return fault
}

func (g *Group) tryAcquire(n int64) (sema.Permit, error) {
	if g.gate == nil {
		return sema.Permit{}, nil
	}
	return g.gate.TryAcquire(g.ctx, n)
}

// call calls one function, and records how it has ended.
func (g *Group) call(p sema.Permit, fn func(ctx context.Context) error) {
	defer g.functions.Done()
	if !g.failed.Load() { // before the goroutine was scheduled
		runUnder(g.ctx, p, fn, g)
	}
}

// ended records how a function has ended.
func (g *Group) ended(err error, panicked *Panic) {
	if panicked == nil && err == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures++
	if panicked == nil {
		g.failLocked(err)
		return
	}
	if g.panicked == nil {
		g.panicked = panicked
	}
	g.endLocked(panicked)
}

// settle waits for all functions, and ends the goroutines of the group.
func (g *Group) settle() {
	g.functions.Wait()
	g.mu.Lock()
	g.waited = true
	g.mu.Unlock()
	g.failed.Store(true)
	g.cancel(nil)
	g.workers.end()
}

// fail records an error. The first one ends the group, unless it collects all.
func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failLocked(err)
}

func (g *Group) failLocked(err error) {
	if g.waited { // for a function that Go got too late: the next Wait reports it
		if len(g.errs) == 0 {
			g.errs = append(g.errs, err)
		}
		return
	}
	if g.all && g.ctx.Err() == nil {
		g.errs = append(g.errs, err)
		return
	}
	g.endLocked(err)
}

// endLocked ends the group with its first error. Errors that follow, mostly of functions
// that were cancelled, are of no interest.
func (g *Group) endLocked(err error) {
	if g.failed.Swap(true) {
		return
	}
	g.errs = append(g.errs, err)
	g.cancel(err)
}

// Wait waits until all functions have returned. It returns the first error, or all of them
// with [AllErrors]. If no function failed, but some did not run because the context of the
// group ended, it returns the cause of that. If a function panicked, Wait panics with a
// [*Panic].
func (g *Group) Wait() error {
	g.settle()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.panicked != nil {
		panic(g.panicked)
	}
	switch {
	case len(g.errs) == 0:
		return nil
	case g.all:
		return errors.Join(g.errs...)
	}
	return g.errs[0]
}
