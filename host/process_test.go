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

func TestProcessesShareTheCapacity(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 3)
	other := startUser(t, dir, name, 3)
	p := mustAcquire(t, sem, 2)
	other.Say("try 2")
	other.Expect("full")
	other.Say("try 1")
	other.Expect("acquired 1")
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	p.Release()
	other.Say("try 2")
	other.Expect("acquired 2")
	settles(t, sem, 3, 0)
}

func TestReleaseWakesAWaiterElsewhere(t *testing.T) {
	t.Parallel()
	sem, dir, name := openPatient(t, 1)
	other := startPatientUser(t, dir, name, 1)
	for range 51 {
		p := mustAcquire(t, sem, 1)
		other.Say("acquire 1")
		settles(t, sem, 1, 1)
		p.Release()
		other.Expect("acquired 1")
		other.Say("release")
		other.Expect("released")
	}
}

func TestOneReleaseServesSeveralWaitersElsewhere(t *testing.T) {
	t.Parallel()
	sem, dir, name := openPatient(t, 3)
	others := []*proctest.Process{startPatientUser(t, dir, name, 3), startPatientUser(t, dir, name, 3), startPatientUser(t, dir, name, 3)}
	for range 11 {
		p := mustAcquire(t, sem, 3)
		for i, other := range others {
			other.Say("acquire 1")
			settles(t, sem, 3, i+1)
		}
		p.Release()
		for _, other := range others {
			other.Expect("acquired 1")
		}
		for _, other := range others {
			other.Say("release")
			other.Expect("released")
		}
	}
}

func TestKilledHoldersPermitsComeBack(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	other := startUser(t, dir, name, 2)
	other.Say("acquire 2")
	other.Expect("acquired 2")
	other.End()
	p, err := sem.TryAcquire(context.Background(), 2)
	if err != nil {
		t.Fatalf("a try after the crash: %v", err)
	}
	p.Release()
}

func TestWaitersNoticeACrash(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	other := startUser(t, dir, name, 2)
	other.Say("acquire 2")
	other.Expect("acquired 2")
	got := acquiring(t, sem, 1)
	settles(t, sem, 2, 1)
	other.End()
	(<-got).Release()
}

func TestOrderIsKeptAmongProcesses(t *testing.T) {
	t.Parallel()
	sem, dir, name := openPatient(t, 1)
	a, b := startPatientUser(t, dir, name, 1), startPatientUser(t, dir, name, 1)
	p := mustAcquire(t, sem, 1)
	a.Say("acquire 1")
	settles(t, sem, 1, 1)
	b.Say("acquire 1")
	settles(t, sem, 1, 2)
	a.Say("acquire 1")
	settles(t, sem, 1, 3)
	p.Release()
	a.Expect("acquired 1")
	a.Say("release")
	a.Expect("released")
	b.Expect("acquired 1") // and not a's second, though a was there
	b.Say("release")
	b.Expect("released")
	a.Expect("acquired 1")
}

func TestHeavyWaiterIsNotOvertaken(t *testing.T) {
	t.Parallel()
	sem, dir, name := openPatient(t, 3)
	heavy, light := startPatientUser(t, dir, name, 3), startPatientUser(t, dir, name, 3)
	first, second := mustAcquire(t, sem, 1), mustAcquire(t, sem, 1)
	heavy.Say("acquire 3")
	settles(t, sem, 2, 1)
	light.Say("try 1")
	light.Expect("full")
	light.Say("acquire 1")
	settles(t, sem, 2, 2)
	first.Release()
	light.Quiet(100 * time.Millisecond)
	second.Release()
	heavy.Expect("acquired 3")
	heavy.Say("release")
	heavy.Expect("released")
	light.Expect("acquired 1")
}

func TestDeadWaiterIsNotInTheWay(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 2)
	p := mustAcquire(t, sem, 1)
	other := startUser(t, dir, name, 2)
	other.Say("acquire 2")
	settles(t, sem, 1, 1)
	other.End()
	q, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatalf("a try behind a dead waiter: %v", err)
	}
	p.Release()
	q.Release()
}

func TestStoppedWaiterIsPassedOverAndComesBackToItsPlace(t *testing.T) {
	t.Parallel()
	const poll, passAfter = 40 * time.Millisecond, 5 * time.Second
	sem, dir, name := open(t, 1)
	host.SetPace(sem, poll, passAfter)
	stopped, behind := startPacedUser(t, dir, name, 1, poll, passAfter), startPacedUser(t, dir, name, 1, poll, passAfter)
	p := mustAcquire(t, sem, 1)
	stopped.Say("acquire 1")
	settles(t, sem, 1, 1)
	behind.Say("acquire 1")
	settles(t, sem, 1, 2)
	stopped.Stop()
	p.Release()
	behind.Expect("acquired 1")
	behind.Say("acquire 1")
	settles(t, sem, 1, 2)
	stopped.Continue()
	eventually(t, "the continued process looks by itself", func() bool { return host.Stopped(sem) == 0 })
	behind.Say("release")
	behind.Expect("released")
	stopped.Expect("acquired 1")
	behind.Quiet(50 * time.Millisecond)
}

func TestSeveralStoppedWaitersAreNotInTheWay(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	p := mustAcquire(t, sem, 1)
	for i := range 3 {
		stopped := startUser(t, dir, name, 1)
		stopped.Say("acquire 1")
		settles(t, sem, 1, i+1)
		stopped.Stop()
	}
	p.Release()
	eventually(t, "a try is served, since no other process runs", func() bool {
		q, err := sem.TryAcquire(context.Background(), 1)
		if err != nil {
			wantErr(t, err, sema.ErrFull)
			return false
		}
		q.Release()
		return true
	})
	// A process that comes later sees it at once.
	other := startUser(t, dir, name, 1)
	other.Say("try 1")
	other.Expect("acquired 1")
}

func TestOpen_StoredConfigurationApplies(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 4, sema.MaxWaiters(2))
	other := startUser(t, dir, name, 4)
	wantStored := func(when string) {
		t.Helper()
		var events []sema.Event
		again := reopen(t, dir, name, 5, sema.MaxWaiters(0), sema.Observe(sema.ObserverFunc(func(e sema.Event) { events = append(events, e) })))
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
	reopen(t, dir, name, host.Existing, quiet).Close()
	reopen(t, dir, name, 4, quiet, sema.MaxWaiters(2)).Close()
	reopen(t, dir, name, 4, quiet).Close() // asks for nothing
	if events != 3 {                       // of Close
		t.Errorf("%d events, want 3", events)
	}
}

func TestResizeIsForAll(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	other := startUser(t, dir, name, 1)
	other.Say("acquire 1")
	other.Expect("acquired 1")
	other.Say("acquire 1")
	settles(t, sem, 1, 1)
	if err := sem.Resize(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	other.Expect("acquired 1")
	other.Say("try 1")
	other.Expect("acquired 1")
	other.Say("resize 1")
	other.Expect("resized")
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	if stats, err := inspectStats(sem); err != nil || stats.Debt != 2 {
		t.Errorf("%+v %v, want a debt of 2", stats, err)
	}
	for range 2 {
		other.Say("release")
		other.Expect("released")
		_, err = sem.TryAcquire(context.Background(), 1)
		wantErr(t, err, sema.ErrFull)
	}
	other.Say("release")
	other.Expect("released")
	mustAcquire(t, sem, 1)
	_, err = sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	_, err = sem.TryAcquire(context.Background(), 2)
	wantErr(t, err, sema.ErrTooLarge)
}
