//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

func newGate(t testing.TB, capacity int) (*sysv.Gate, *sysv.Set) {
	t.Helper()
	set := newSet(t, capacity)
	gate, err := sysv.AsGate(set, 0, int64(capacity))
	must(t, err)
	return gate, set
}

func acquire(t testing.TB, gate sema.Gate, n int64) sema.Permit {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	permit, err := gate.Acquire(ctx, n)
	must(t, err)
	if permit.Weight() != n {
		t.Errorf("weight is %d, want %d", permit.Weight(), n)
	}
	return permit
}

func TestGate_KeepsTheContract(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 3)
	ended, cancel := context.WithCancelCause(background)
	reason := errors.New("the cause")
	cancel(reason)
	for _, try := range []func(context.Context, int64) (sema.Permit, error){gate.Acquire, gate.TryAcquire} {
		_, err := try(ended, 1)
		mustBe(t, err, reason)
		_, err = try(background, 4)
		mustBe(t, err, sema.ErrTooLarge)
		_, err = try(background, -1)
		mustBe(t, err, sema.ErrInvalid)
		_, err = try(nil, 1)
		mustBe(t, err, sema.ErrInvalid)
		none, err := try(background, 0)
		must(t, err)
		none.Release()
		all, err := try(background, 3)
		must(t, err)
		none, err = try(background, 0)
		must(t, err)
		none.Release()
		expectValues(t, set, 0)
		_, err = gate.TryAcquire(background, 2)
		mustBe(t, err, sema.ErrFull)
		if want := `try 2 of 3 permits: too few permits free (3 in use, 0 waiting)`; !strings.Contains(err.Error(), want) {
			t.Errorf("error %q does not contain %q", err, want)
		}
		all.Release()
		all.Release()
		expectValues(t, set, 3)
	}
	if gate.Scope() != sema.HostScope || gate.Name() != set.Name()+"/0" {
		t.Errorf("name %q, scope %d", gate.Name(), gate.Scope())
	}
}

func TestAsGate_RejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	set := newSet(t, 3, sysv.MaxValue)
	for _, try := range []struct {
		num      int
		capacity int64
	}{{0, 0}, {0, -1}, {0, sysv.MaxValue + 1}, {0, 2}, {-1, 3}, {2, 3}} {
		_, err := sysv.AsGate(set, try.num, try.capacity)
		mustBe(t, err, sema.ErrInvalid)
	}
	largest, err := sysv.AsGate(set, 1, sysv.MaxValue)
	must(t, err)
	all := acquire(t, largest, sysv.MaxValue)
	expectValues(t, set, 3, 0)
	all.Release()
	expectValues(t, set, 3, sysv.MaxValue)
}

func TestGate_SplitPermitIsReleasedInParts(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 5)
	whole := acquire(t, gate, 5)
	first, rest, err := whole.Split(2)
	must(t, err)
	whole.Release()
	expectValues(t, set, 0)
	first.Release()
	expectValues(t, set, 2)
	second, third, err := rest.Split(1)
	must(t, err)
	third.Release()
	expectValues(t, set, 4)
	second.Release()
	rest.Release()
	expectValues(t, set, 5)
}

// TestGate_SplitPermitsOfEndedProcessesAreReleased checks that the kernel undoes only
// what is still held.
func TestGate_SplitPermitsOfEndedProcessesAreReleased(t *testing.T) {
	t.Parallel()
	set := newSet(t, 5)
	p := proctest.Start(t, "splitter", idOf(set))
	p.Expect("holding 3")
	expectValues(t, set, 2)
	p.End()
	expectValues(t, set, 5)
}

func holdAPart(c *proctest.Child) {
	gate, err := sysv.AsGate(openArg(c, 0), 0, 5)
	c.Must(err)
	whole, err := gate.Acquire(background, 5)
	c.Must(err)
	first, rest, err := whole.Split(2)
	c.Must(err)
	first.Release()
	c.Send("holding %d", rest.Weight())
	c.Receive()
}

// waiters returns the number of waiters that a rejected TryAcquire reports.
func waiters(t testing.TB, gate *sysv.Gate) int {
	t.Helper()
	_, err := gate.TryAcquire(background, 1)
	var rejected *sema.Error
	if !errors.As(err, &rejected) || !errors.Is(err, sema.ErrFull) {
		t.Fatalf("TryAcquire at a gate with waiters: %v, want ErrFull", err)
	}
	return rejected.Waiters
}

func TestGate_ServesGoroutinesInOrderAndOneWaitsInTheKernel(t *testing.T) {
	t.Parallel()
	const queue = 8
	gate, set := newGate(t, 2)
	held := acquire(t, gate, 2)
	order := make(chan int, queue)
	permits := make(chan sema.Permit, queue)
	for i := range queue {
		go func() {
			permits <- acquire(t, gate, int64(1+i%2)) // heavy and light
			order <- i
		}()
		eventually(t, "one more waits", func() bool { return waiters(t, gate) == i+1 })
	}
	if inKernel, _, err := set.Waiting(0); err != nil || inKernel != 1 {
		t.Errorf("%d threads wait in the kernel (%v), want 1", inKernel, err)
	}
	held.Release()
	for i := range queue {
		select {
		case got := <-order:
			if got != i {
				t.Errorf("waiter %d was served after %d others", got, i)
			}
			(<-permits).Release()
		case <-time.After(time.Minute):
			t.Fatalf("waiter %d is not served", i)
		}
	}
	expectValues(t, set, 2)
}

func TestGate_TryAcquireDoesNotOvertake(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 2)
	held := acquire(t, gate, 1)
	ctx, cancel := context.WithCancel(background)
	heavy := start(func() error {
		permit, err := gate.Acquire(ctx, 2)
		permit.Release()
		return err
	})
	awaitWaiting(t, set, 0, 1)
	_, err := gate.TryAcquire(background, 1)
	mustBe(t, err, sema.ErrFull)
	light := start(func() error {
		permit, err := gate.Acquire(background, 1)
		permit.Release()
		return err
	})
	eventually(t, "the light waiter is queued too", func() bool { return waiters(t, gate) == 2 })
	cancel()
	mustBe(t, await(t, heavy), context.Canceled)
	must(t, await(t, light))
	held.Release()
	eventually(t, "no waiter is left", func() bool {
		permit, err := gate.TryAcquire(background, 2)
		permit.Release()
		return err == nil
	})
	expectValues(t, set, 2)
}

func TestGate_ProcessesShareOneSemaphore(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 3)
	p := proctest.Start(t, "holder", idOf(set), "2")
	p.Expect("holding")
	_, err := gate.TryAcquire(background, 2)
	mustBe(t, err, sema.ErrFull)
	ours := make(chan sema.Permit, 1)
	go func() { ours <- acquire(t, gate, 3) }()
	awaitWaiting(t, set, 0, 1)
	p.End() // killed
	permit := <-ours
	expectValues(t, set, 0)
	permit.Release()
}

func TestGate_AcquireAllUsesOneOrder(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1, 1)
	a, err := sysv.AsGate(set, 0, 1)
	must(t, err)
	b, err := sysv.AsGate(set, 1, 1)
	must(t, err)
	var working sync.WaitGroup
	for i := range 4 {
		working.Go(func() {
			wants := []sema.Want{{Gate: a, N: 1}, {Gate: b, N: 1}}
			if i%2 == 0 {
				slices.Reverse(wants)
			}
			for range 50 {
				ctx, cancel := context.WithTimeout(background, time.Minute)
				both, err := sema.AcquireAll(ctx, wants...)
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
				both.Release()
			}
		})
	}
	working.Wait()
	expectValues(t, set, 1, 1)
}

func TestAsGate_RejectsMaxWaiters(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1)
	for _, n := range []int{0, 1} {
		_, err := sysv.AsGate(set, 0, 1, sema.MaxWaiters(n))
		mustBe(t, err, sema.ErrInvalid)
		if sema.Hint(err) == "" || !strings.Contains(err.Error(), "MaxWaiters") {
			t.Errorf("%v, hint %q", err, sema.Hint(err))
		}
	}
}

func TestGate_Options(t *testing.T) {
	t.Parallel()
	var kinds []sema.EventKind
	gate, err := sysv.AsGate(newSet(t, 2), 0, 2, sema.Name("sysv label"), sema.MaxWait(time.Millisecond), sema.Diagnose(sema.DiagnoseFull),
		sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Name != "sysv label" {
				t.Errorf("%+v", e)
			}
			kinds = append(kinds, e.Kind)
		})))
	must(t, err)
	permit, err := gate.Acquire(background, 2)
	must(t, err)
	held := func() (n int) {
		for _, h := range sema.Holders() {
			if h.Name == "sysv label" && h.Weight == 2 && strings.Contains(h.Site, "gate_test.go") {
				n++
			}
		}
		return n
	}
	if held() != 1 {
		t.Errorf("%d holders, want 1", held())
	}
	_, err = gate.Acquire(background, 1)
	mustBe(t, err, sema.ErrTimeout)
	if want := `"sysv label": acquire 1 of 2 permits: waited too long: 1ms (2 in use, 0 waiting)`; !strings.Contains(err.Error(), want) {
		t.Errorf("error %v does not contain %s", err, want)
	}
	_, err = gate.TryAcquire(background, 1)
	mustBe(t, err, sema.ErrFull)
	st := gate.Stats()
	if st.WaitTime < time.Millisecond {
		t.Errorf("wait time %v, want at least 1ms", st.WaitTime)
	}
	st.WaitTime = 0
	if want := (sema.Stats{Capacity: 2, InUse: 2, Counts: sema.Counts{Acquired: 1, Waited: 1, TimedOut: 1, Rejected: 1}}); st != want {
		t.Errorf("%+v, want %+v", st, want)
	}
	permit.Release()
	if held() != 0 {
		t.Errorf("%d holders after the release", held())
	}
	must(t, gate.Close())
	must(t, gate.Close())
	want := []sema.EventKind{sema.EventAcquired, sema.EventExhausted, sema.EventQueued, sema.EventTimedOut, sema.EventRejected,
		sema.EventReleased, sema.EventRecovered, sema.EventClosed}
	if !slices.Equal(kinds, want) {
		t.Errorf("reported %v, want %v", kinds, want)
	}
}

func TestGate_UnsupportedOperations(t *testing.T) {
	t.Parallel()
	gate, set := newGate(t, 1)
	var none context.Context
	mustBe(t, set.Op(none), sema.ErrInvalid)
	for about, do := range map[string]func(context.Context) error{
		"resize": func(ctx context.Context) error { return gate.Resize(ctx, 2) },
		"drain":  gate.Drain,
		"resume": gate.Resume,
	} {
		if err := do(nil); !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%s: %v", about, err)
		}
		if err := do(background); !errors.Is(err, errors.ErrUnsupported) || sema.Hint(err) == "" {
			t.Errorf("%s: %v", about, err)
		}
	}
}
