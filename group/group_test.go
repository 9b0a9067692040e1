package group_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/sematest"
)

var (
	ctx      = context.Background()
	errA     = errors.New("a")
	errB     = errors.New("b")
	errCause = errors.New("cause")
)

func TestGroup_RunsAsManyAsTheGateAdmits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(3)
		sematest.NoneHeld(t, gate)
		g := group.New(ctx, gate)
		var running, most, ran atomic.Int64
		start := time.Now()
		for range 10 {
			g.Go(func(context.Context) error {
				if n := running.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				running.Add(-1)
				ran.Add(1)
				return nil
			})
		}
		if err := g.Wait(); err != nil || ran.Load() != 10 || most.Load() != 3 || time.Since(start) != 4*time.Second {
			t.Errorf("%v: %d ran, %d at once, in %v", err, ran.Load(), most.Load(), time.Since(start))
		}
		if g.Context().Err() == nil {
			t.Error("the context of the group has not ended")
		}
	})
}

func TestGroup_WithoutGate(t *testing.T) {
	t.Parallel()
	g := group.New(ctx, nil)
	var ran atomic.Int64
	for range 100 {
		g.Go(func(context.Context) error { ran.Add(1); return nil })
	}
	if !g.TryGo(func(context.Context) error { ran.Add(1); return nil }) {
		t.Error("TryGo did not run")
	}
	if err := g.GoWithin(ctx, 5, func(context.Context) error { ran.Add(1); return nil }); err != nil {
		t.Error(err)
	}
	if err := g.GoWithin(ctx, -1, func(context.Context) error { return nil }); !errors.Is(err, sema.ErrInvalid) {
		t.Error(err)
	}
	if err := g.Wait(); err != nil || ran.Load() != 102 {
		t.Errorf("%v: %d ran", err, ran.Load())
	}
}

// TestGroup_NothingStartsAfterAFailure holds golang/go#61611: errgroup starts functions

// after one has failed, and a caller of Go that waits for the limit goes on to start its

// own.

func TestGroup_NothingStartsAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(1)
		sematest.NoneHeld(t, gate)
		g := group.New(ctx, gate)
		g.Go(func(context.Context) error {
			time.Sleep(time.Second)
			return errA
		})
		started := false
		g.Go(func(context.Context) error { started = true; return nil }) // waits for the permit
		g.Go(func(context.Context) error { started = true; return nil })
		if g.TryGo(func(context.Context) error { started = true; return nil }) {
			t.Error("TryGo after a failure")
		}
		if err := g.GoWithin(ctx, 1, func(context.Context) error { started = true; return nil }); err != errA {
			t.Errorf("GoWithin after a failure: %v", err)
		}
		if err := g.Wait(); err != errA || started {
			t.Errorf("%v, started: %t", err, started)
		}
	})
}

// TestGroup_NoStartBetweenGoAndSchedule checks that a function whose goroutine was created

// but has not run yet does not run after a failure.

func TestGroup_NoStartBetweenGoAndSchedule(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		gate := sema.New(2)
		failed, late := false, false
		w.Go("caller", func(ctx context.Context) {
			g := group.New(ctx, gate)
			g.Go(func(context.Context) error { failed = true; return errA })
			w.Yield()
			g.Go(func(context.Context) error {
				late = late || failed && g.Context().Err() != nil
				return nil
			})
			if err := g.Wait(); err != errA {
				w.Errorf("%v", err)
			}
		})
		w.Finally("nothing starts after the failure, and everything is free", func() bool { return !late && gate.Stats().Free == 2 })
	}, sematest.Schedules(200))
}

// TestGroup_ReturnsTheErrorOfTheFunction holds golang/go#27837: not that of a function

// that it has cancelled.

func TestGroup_ReturnsTheErrorOfTheFunction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := group.New(ctx, sema.New(5))
		for range 4 {
			g.Go(func(ctx context.Context) error {
				<-ctx.Done()
				if context.Cause(ctx) != errA {
					t.Errorf("cause %v", context.Cause(ctx))
				}
				return ctx.Err()
			})
		}
		g.Go(func(context.Context) error { return errA })
		if err := g.Wait(); err != errA {
			t.Error(err)
		}
	})
}

func TestGroup_AllErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(1)
		g := group.New(ctx, gate, group.AllErrors)
		ran := 0
		for _, err := range []error{errA, nil, errB, nil} {
			g.Go(func(ctx context.Context) error {
				ran++
				if ctx.Err() != nil {
					t.Error("the context has ended")
				}
				return err
			})
		}
		g.GoN(2, func(context.Context) error { ran++; return nil })
		err := g.Wait()
		if ran != 4 || !errors.Is(err, errA) || !errors.Is(err, errB) || !errors.Is(err, sema.ErrTooLarge) {
			t.Errorf("%d ran: %v", ran, err)
		}
	})
}

func TestGroup_ContextOfTheCallerEnds(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]group.Option{nil, {group.AllErrors}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(ctx)
			gate := sema.New(1)
			sematest.NoneHeld(t, gate)
			g := group.New(ctx, gate, opts...)
			g.Go(func(ctx context.Context) error { <-ctx.Done(); return nil })
			time.AfterFunc(time.Second, func() { cancel(errCause) })
			g.Go(func(context.Context) error { t.Error("started"); return nil })
			g.Go(func(context.Context) error { t.Error("started"); return nil })
			if err := g.Wait(); !errors.Is(err, errCause) || strings.Count(err.Error(), "cause") != 1 {
				t.Errorf("%v, want the cause once: some functions did not run", err)
			}
		})
	}
}

func TestGroup_GateRejects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(1, sema.MaxWait(time.Second))
		g := group.New(ctx, gate)
		g.Go(func(ctx context.Context) error { time.Sleep(time.Hour); return ctx.Err() })
		g.Go(func(context.Context) error { t.Error("started"); return nil })
		if err := g.Wait(); !errors.Is(err, sema.ErrTimeout) {
			t.Error(err)
		}
	})
}

func TestGroup_Weights(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bytes := sema.New(100)
		g := group.New(ctx, bytes)
		var used, most atomic.Int64
		for i := range 20 {
			n := int64(10 + i*4)
			g.GoN(n, func(context.Context) error {
				if sum := used.Add(n); sum > most.Load() {
					most.Store(sum)
				}
				time.Sleep(time.Second)
				used.Add(-n)
				return nil
			})
		}
		if err := g.Wait(); err != nil || most.Load() > 100 || most.Load() < 60 {
			t.Errorf("%v: at most %d", err, most.Load())
		}
	})
}

func TestGroup_GoWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(1)
		sematest.NoneHeld(t, gate)
		g := group.New(ctx, gate)
		g.Go(func(context.Context) error { time.Sleep(time.Minute); return nil })
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := g.GoWithin(short, 1, func(context.Context) error { t.Error("started"); return nil }); err != context.DeadlineExceeded {
			t.Error(err)
		}
		var none context.Context
		if err := g.GoWithin(none, 1, nil); !errors.Is(err, sema.ErrInvalid) {
			t.Error(err)
		}
		ran := false
		if err := g.GoWithin(ctx, 1, func(ctx context.Context) error { ran = true; return nil }); err != nil {
			t.Error(err)
		}
		if err := g.Wait(); err != nil || !ran {
			t.Errorf("%v, ran: %t", err, ran)
		}
	})
}

func TestGroup_PanicsSurfaceAtWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(2)
		sematest.NoneHeld(t, gate)
		g := group.New(ctx, gate)
		g.Go(panics)
		g.Go(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		defer func() {
			p, ok := recover().(*group.Panic)
			if !ok || p.Value != errA || !errors.Is(p, errA) || !strings.Contains(string(p.Stack), "group_test.panics") || !strings.Contains(p.Error(), "group_test.panics") {
				t.Errorf("recovered %v, want the value and the stack of the function", p)
			}
		}()
		err := g.Wait()
		t.Errorf("Wait returned %v", err)
	})
}

func panics(context.Context) error { panic(errA) }

func TestGroup_FunctionsThatEndTheirGoroutine(t *testing.T) {
	t.Parallel()
	gate := sema.New(1)
	g := group.New(ctx, gate)
	g.Go(func(context.Context) error { runtime.Goexit(); return nil })
	if err := g.Wait(); err == nil || !strings.Contains(err.Error(), "Goexit") || gate.Stats().InUse != 0 {
		t.Errorf("%v, %+v", err, gate.Stats())
	}
}

// TestGroup_LostLease checks that the context of a function ends when its permit is lost,

// and that the loss is an error.

func TestGroup_LostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		client := fleet.New(store)
		defer client.Close(ctx, fleet.CloseAbandon)
		s, err := client.Semaphore("jobs", 1)
		if err != nil {
			t.Fatal(err)
		}
		g := group.New(ctx, s)
		g.Go(func(ctx context.Context) error {
			info, err := client.Info(ctx, "jobs")
			if err != nil {
				return err
			}
			if err := client.Revoke(ctx, "jobs", fleet.Revocation{Lease: info.Holders[0].Lease, AtOnce: true}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		if err := g.Wait(); !errors.Is(err, sema.ErrLost) {
			t.Error(err)
		}
	})
}

// TestGroup_FunctionsMayStartOthers checks that functions may use the group, too.

func TestGroup_FunctionsMayStartOthers(t *testing.T) {
	t.Parallel()
	g := group.New(ctx, sema.New(100))
	var ran atomic.Int64
	var walk func(depth int)
	walk = func(depth int) {
		g.Go(func(context.Context) error {
			ran.Add(1)
			if depth > 0 {
				walk(depth - 1)
				walk(depth - 1)
			}
			return nil
		})
	}
	walk(4)
	if err := g.Wait(); err != nil || ran.Load() != 31 {
		t.Errorf("%v: %d ran", err, ran.Load())
	}
}

// TestStream_SlowLoopHoldsNoPermits checks that results that wait for the loop do not keep

// the permits of a gate that others share, and that their number is bounded.

// TestStream_SequenceThatEndsItsGoroutine: that is not a sequence without further values.

func TestNew_RejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	var none context.Context
	for name, create := range map[string]func(){
		"context":  func() { group.New(none, nil) },
		"option":   func() { group.New(ctx, nil, 9) },
		"capacity": func() { group.NewKeyed(-1) },
		"Set":      func() { group.NewKeyed(1).Set("a", -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			create()
		}()
	}
}

func TestGroup_FunctionAfterWaitIsReported(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]group.Option{"first error": nil, "all errors": {group.AllErrors}} {
		t.Run(name, func(t *testing.T) {
			g := group.New(ctx, sema.New(1), opts...)
			run := func(context.Context) error { t.Error("the function ran"); return nil }
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			if err := g.GoWithin(ctx, 1, run); !errors.Is(err, sema.ErrClosed) {
				t.Errorf("GoWithin: %v, want ErrClosed", err)
			}
			if g.TryGo(run) {
				t.Error("TryGo reports that the function runs")
			}
			if err := g.Wait(); err != nil {
				t.Errorf("Wait: %v, and nothing was lost", err)
			}
			g.Go(run)
			if err := g.Wait(); !errors.Is(err, sema.ErrClosed) || sema.Hint(err) != "create a new group" {
				t.Errorf("Wait: %v, want ErrClosed: a function did not run", err)
			}
		})
	}
	failed := group.New(ctx, nil)
	failed.Go(func(context.Context) error { return errA })
	for range 2 {
		if err := failed.Wait(); err != errA {
			t.Errorf("%v, want the first error", err)
		}
		failed.Go(func(context.Context) error { return errB })
	}
}

func TestGroup_NilFunctionPanics(t *testing.T) {
	t.Parallel()
	g := group.New(ctx, sema.New(1))
	for name, call := range map[string]func(){
		"Go":       func() { g.Go(nil) },
		"GoN":      func() { g.GoN(1, nil) },
		"TryGo":    func() { g.TryGo(nil) },
		"GoWithin": func() { g.GoWithin(ctx, 1, nil) }, //semavet:ignore panics
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "the function is nil") {
					t.Errorf("%s: %q", name, text)
				}
			}()
			call()
		}()
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestGroup_InvalidArgumentsNameTheGate(t *testing.T) {
	t.Parallel()
	g := group.New(ctx, sema.New(1, sema.Name("db")))
	run := func(context.Context) error { return nil }
	var none context.Context
	for want, err := range map[string]error{
		`sema: "db": group: invalid argument: negative weight, -2`: g.GoWithin(ctx, -2, run),
		`sema: "db": group: invalid argument: nil context`:         g.GoWithin(none, 1, run),
	} {
		if !errors.Is(err, sema.ErrInvalid) || err.Error() != want || sema.Hint(err) == "" {
			t.Errorf("got  %v, hint %q\nwant %s", err, sema.Hint(err), want)
		}
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
