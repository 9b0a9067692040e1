//go:build linux

package host_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

func TestSemaphore_ProcessesShareTheCapacity(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 3)
	other := startUser(t, dir, name, 3)
	p := mustAcquire(t, sem, 2)
	other.Send("try 2")
	other.Expect("full")
	other.Send("try 1")
	other.Expect("acquired 1")
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	p.Release()
	other.Send("try 2")
	other.Expect("acquired 2")
	awaitStats(t, sem, 3, 0)
}

func TestRelease_WakesAWaiterOfAnotherProcess(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 1)
	other := startUserWithoutPolling(t, dir, name, 1)
	for range 51 {
		p := mustAcquire(t, sem, 1)
		other.Send("acquire 1")
		awaitStats(t, sem, 1, 1)
		p.Release()
		other.Expect("acquired 1")
		other.Send("release")
		other.Expect("released")
	}
}

func TestRelease_ServesWaitersOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 3)
	others := []*proctest.Process{startUserWithoutPolling(t, dir, name, 3), startUserWithoutPolling(t, dir, name, 3), startUserWithoutPolling(t, dir, name, 3)}
	for range 11 {
		p := mustAcquire(t, sem, 3)
		for i, other := range others {
			other.Send("acquire 1")
			awaitStats(t, sem, 3, i+1)
		}
		p.Release()
		for _, other := range others {
			other.Expect("acquired 1")
		}
		for _, other := range others {
			other.Send("release")
			other.Expect("released")
		}
	}
}

func TestSemaphore_KilledHoldersPermitsAreFree(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	other := startUser(t, dir, name, 2)
	other.Send("acquire 2")
	other.Expect("acquired 2")
	other.End()
	p, err := sem.TryAcquire(context.Background(), 2)
	if err != nil {
		t.Fatalf("TryAcquire after the crash: %v", err)
	}
	p.Release()
}

func TestAcquire_WaiterDetectsACrash(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	other := startUser(t, dir, name, 2)
	other.Send("acquire 2")
	other.Expect("acquired 2")
	got := acquiring(t, sem, 1)
	awaitStats(t, sem, 2, 1)
	other.End()
	(<-got).Release()
}

func TestSemaphore_KeepsOrderAmongProcesses(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 1)
	a, b := startUserWithoutPolling(t, dir, name, 1), startUserWithoutPolling(t, dir, name, 1)
	p := mustAcquire(t, sem, 1)
	a.Send("acquire 1")
	awaitStats(t, sem, 1, 1)
	b.Send("acquire 1")
	awaitStats(t, sem, 1, 2)
	a.Send("acquire 1")
	awaitStats(t, sem, 1, 3)
	p.Release()
	a.Expect("acquired 1")
	a.Send("release")
	a.Expect("released")
	b.Expect("acquired 1") // not the second waiter of a, which arrived later
	b.Send("release")
	b.Expect("released")
	a.Expect("acquired 1")
}

func TestSemaphore_HeavyWaiterIsNotOvertaken(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 3)
	heavy, light := startUserWithoutPolling(t, dir, name, 3), startUserWithoutPolling(t, dir, name, 3)
	first, second := mustAcquire(t, sem, 1), mustAcquire(t, sem, 1)
	heavy.Send("acquire 3")
	awaitStats(t, sem, 2, 1)
	light.Send("try 1")
	light.Expect("full")
	light.Send("acquire 1")
	awaitStats(t, sem, 2, 2)
	first.Release()
	light.Quiet(100 * time.Millisecond)
	second.Release()
	heavy.Expect("acquired 3")
	heavy.Send("release")
	heavy.Expect("released")
	light.Expect("acquired 1")
}

func TestTryAcquire_IgnoresWaitersOfEndedProcesses(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	p := mustAcquire(t, sem, 1)
	other := startUser(t, dir, name, 2)
	other.Send("acquire 2")
	awaitStats(t, sem, 1, 1)
	other.End()
	q, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatalf("TryAcquire behind the waiter of an ended process: %v", err)
	}
	p.Release()
	q.Release()
}

func TestSemaphore_StoppedWaiterIsSkippedAndKeepsItsPlace(t *testing.T) {
	t.Parallel()
	const poll, skipAfter = 40 * time.Millisecond, 5 * time.Second
	sem, dir, name := open(t, 1)
	host.SetTiming(sem, poll, skipAfter)
	stopped, behind := startTimedUser(t, dir, name, 1, poll, skipAfter), startTimedUser(t, dir, name, 1, poll, skipAfter)
	p := mustAcquire(t, sem, 1)
	stopped.Send("acquire 1")
	awaitStats(t, sem, 1, 1)
	behind.Send("acquire 1")
	awaitStats(t, sem, 1, 2)
	stopped.Stop()
	p.Release()
	behind.Expect("acquired 1")
	behind.Send("acquire 1")
	awaitStats(t, sem, 1, 2)
	stopped.Continue()
	eventually(t, "the continued process polls", func() bool { return host.Stopped(sem) == 0 })
	behind.Send("release")
	behind.Expect("released")
	stopped.Expect("acquired 1")
	behind.Quiet(50 * time.Millisecond)
}

func TestTryAcquire_SkipsSeveralStoppedWaiters(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	p := mustAcquire(t, sem, 1)
	for i := range 3 {
		stopped := startUser(t, dir, name, 1)
		stopped.Send("acquire 1")
		awaitStats(t, sem, 1, i+1)
		stopped.Stop()
	}
	p.Release()
	eventually(t, "TryAcquire succeeds, since no other process runs", func() bool {
		q, err := sem.TryAcquire(context.Background(), 1)
		if err != nil {
			wantErr(t, err, sema.ErrFull)
			return false
		}
		q.Release()
		return true
	})
	// A process that starts later skips them at once.
	other := startUser(t, dir, name, 1)
	other.Send("try 1")
	other.Expect("acquired 1")
}

func TestOpen_StoredConfigurationApplies(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 4, sema.MaxWaiters(2))
	other := startUser(t, dir, name, 4)
	wantStored := func(when string) {
		t.Helper()
		var events []sema.Event
		again := openIn(t, dir, name, 5, sema.MaxWaiters(0), sema.Observe(sema.ObserverFunc(func(e sema.Event) { events = append(events, e) })))
		if len(events) != 1 || events[0].Kind != sema.EventMismatched || events[0].Capacity != 4 || events[0].Name != name ||
			!strings.Contains(events[0].Report, "capacity 4, not 5 and at most 2 waiters, not no waiters") {
			t.Errorf("%s: events %+v", when, events)
		}
		info, err := again.Inspect(context.Background())
		if err != nil || info.Stats.Capacity != 4 || info.MaxWaiters != 2 {
			t.Errorf("%s: %+v %v", when, info, err)
		}
		again.Close()
	}
	wantStored("open in this process")
	sem.Close()
	wantStored("open in another process")
	other.End()
	wantStored("open in no process")
	events := 0
	quiet := sema.Observe(sema.ObserverFunc(func(sema.Event) { events++ }))
	openIn(t, dir, name, host.Existing, quiet).Close()
	openIn(t, dir, name, 4, quiet, sema.MaxWaiters(2)).Close()
	openIn(t, dir, name, 4, quiet).Close() // MaxWaiters is absent
	if events != 3 {                       // EventClosed
		t.Errorf("%d events, want 3", events)
	}
}

func TestResize_AppliesToAllProcesses(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	other := startUser(t, dir, name, 1)
	other.Send("acquire 1")
	other.Expect("acquired 1")
	other.Send("acquire 1")
	awaitStats(t, sem, 1, 1)
	if err := sem.Resize(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	other.Expect("acquired 1")
	other.Send("try 1")
	other.Expect("acquired 1")
	other.Send("resize 1")
	other.Expect("resized")
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	if stats, err := inspectStats(sem); err != nil || stats.Debt != 2 {
		t.Errorf("%+v %v, want a debt of 2", stats, err)
	}
	for range 2 {
		other.Send("release")
		other.Expect("released")
		_, err = sem.TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrFull)
	}
	other.Send("release")
	other.Expect("released")
	mustAcquire(t, sem, 1)
	_, err = sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	_, err = sem.TryAcquire(context.Background(), 2)
	wantErr(t, err, sema.ErrTooLarge)
}
