package sema_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// reports returns a journal of events of the given kinds, and the option that fills it.
func reports(kinds ...sema.EventKind) (*journal, sema.SharedOption) {
	j := new(journal)
	return j, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if slices.Contains(kinds, e.Kind) {
			j.Observe(e)
		}
	}))
}

func TestDiagnose_HoldersAndProfilesNameTheAcquire(t *testing.T) {
	s := sema.New(2, sema.Name("profiled"), sema.Diagnose(sema.DiagnoseFull), sema.Observe(new(journal)))
	held := mustAcquire(t, s, 2)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := acquiring(ctx, s, 1)
	waitersReach(t, 1, func() int { return s.Stats().Waiters })
	time.Sleep(5 * time.Millisecond) // so that the wait has a duration

	var mine []sema.Holder
	for _, h := range sema.Holders() {
		if h.Name == "profiled" {
			mine = append(mine, h)
		}
	}
	if len(mine) != 1 || mine[0].Weight != 2 || mine[0].Age <= 0 || !strings.Contains(mine[0].Site, "helpers_test.go:") ||
		!strings.Contains(mine[0].Stack, "TestDiagnose_HoldersAndProfilesNameTheAcquire") {
		t.Errorf("holders %+v", mine)
	}
	for profile, function := range map[string]string{
		"sema.held":    "sema_test.mustAcquire",
		"sema.waiting": "sema_test.acquiring",
	} {
		text := profileText(profile)
		if !strings.Contains(text, function) || strings.Contains(text, "sema.(*Semaphore)") {
			t.Errorf("%s does not start at the caller:\n%s", profile, text)
		}
	}
	cancel()
	<-waiting
	held.Release()
	if text := profileText("sema.held"); strings.Contains(text, "TestDiagnose_HoldersAndProfilesNameTheAcquire") {
		t.Errorf("the released permit is in the profile:\n%s", text)
	}
	found := false
	for _, c := range sema.Contention() {
		found = found || strings.Contains(c.Site, "helpers_test.go:") && c.Waits > 0 && c.Total > 0
	}
	if !found {
		t.Errorf("the wait is not in %+v", sema.Contention())
	}
	if text := profileText("sema.contention"); !strings.Contains(text, "sema_test.acquiring") {
		t.Errorf("the wait is not in the profile:\n%s", text)
	}
}

func profileText(name string) string {
	var b bytes.Buffer
	pprof.Lookup(name).WriteTo(&b, 1)
	return b.String()
}

func TestWarnHold_ReportsOnceWithTheStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, observe := reports(sema.EventOverheld)
		s := sema.New(2, sema.WarnHold(time.Second), observe)
		quick := mustAcquire(t, s, 1)
		slow := mustAcquire(t, s, 1)
		time.Sleep(900 * time.Millisecond)
		quick.Release()
		time.Sleep(time.Minute)
		slow.Release()
		e := wantKinds(t, j, sema.EventOverheld)
		if e[0].Hold != time.Second || !strings.Contains(e[0].Report, "TestWarnHold_ReportsOnceWithTheStack") {
			t.Errorf("%+v", e[0])
		}
	})
}

func TestDiagnose_LeakIsReportedAndReclaimedIfRequested(t *testing.T) {
	leaked, observe := leakReports()
	s := sema.New(2, sema.Name("keeps"), sema.Diagnose(sema.DiagnoseFull), observe)
	leak(t, s)
	kept := mustAcquire(t, s, 1)
	e := collectUntil(t, leaked)
	if e.Name != "keeps" || e.Weight != 1 || !strings.Contains(e.Report, "ReclaimLeaks") {
		t.Errorf("%+v", e)
	}
	wantStats(t, s, 2, 0)
	if !kept.Held() {
		t.Error("a permit in use was reclaimed as leaked")
	}
	kept.Release()
}

func TestDiagnose_InvertedOrderIsReportedOnceWithBothStacks(t *testing.T) {
	for name, level := range map[string]sema.DiagnoseLevel{"by context": sema.DiagnoseSampled, "by goroutine": sema.DiagnoseFull} {
		t.Run(name, func(t *testing.T) {
			j, observe := reports(sema.EventInverted)
			a := sema.New(1, sema.Name("a "+name), sema.Diagnose(level), observe)
			b := sema.New(1, sema.Name("b "+name), sema.Diagnose(level), observe)
			for range 3 {
				lockAThenB(t, a, b, level)
			}
			if len(j.take()) > 0 {
				t.Fatal("an inversion was reported for a single order")
			}
			for range 3 {
				lockBThenA(t, b, a, level)
			}
			e := wantKinds(t, j, sema.EventInverted)
			report := e[0].Report
			if !strings.Contains(report, "lockAThenB") || !strings.Contains(report, "lockBThenA") ||
				!strings.Contains(report, `"a `+name) || !strings.Contains(report, "AcquireAll") {
				t.Errorf("%s", report)
			}
		})
	}
}

func lockAThenB(t *testing.T, a, b *sema.Semaphore, level sema.DiagnoseLevel) {
	lockInOrder(t, a, b, level)
}
func lockBThenA(t *testing.T, b, a *sema.Semaphore, level sema.DiagnoseLevel) {
	lockInOrder(t, b, a, level)
}

func lockInOrder(t *testing.T, first, second *sema.Semaphore, level sema.DiagnoseLevel) {
	ctx := t.Context()
	p, err := first.Acquire(ctx, 1)
	wantErr(t, err, nil)
	defer p.Release()
	if level != sema.DiagnoseFull { // the context identifies the permit
		held, cancel := p.Context(ctx)
		defer cancel()
		ctx = held
	}
	q, err := second.Acquire(ctx, 1)
	wantErr(t, err, nil)
	q.Release()
}

func TestDiagnose_LongerCyclesAreReported(t *testing.T) {
	j, observe := reports(sema.EventInverted)
	var ring []*sema.Semaphore
	for _, name := range []string{"ring x", "ring y", "ring z"} {
		ring = append(ring, sema.New(1, sema.Name(name), sema.Diagnose(sema.DiagnoseFull), observe))
	}
	lockInOrder(t, ring[0], ring[1], sema.DiagnoseFull)
	lockInOrder(t, ring[1], ring[2], sema.DiagnoseFull)
	lockInOrder(t, ring[2], ring[0], sema.DiagnoseFull)
	e := wantKinds(t, j, sema.EventInverted)
	if !strings.Contains(e[0].Report, "ring z → ring x here, but ring x → ring y → ring z elsewhere") {
		t.Errorf("%s", e[0].Report)
	}
}

// TestDiagnose_OrderUnderAPermitThatIsSplit checks that an acquire under a permit
// counts if the permit is split before its release.
func TestDiagnose_OrderUnderAPermitThatIsSplit(t *testing.T) {
	j, observe := reports(sema.EventInverted)
	full := sema.Diagnose(sema.DiagnoseFull)
	a, b := sema.New(4, sema.Name("split a"), full, observe), sema.New(4, sema.Name("split b"), full, observe)
	whole := mustAcquire(t, a, 4)
	mustAcquire(t, b, 1).Release()
	part, rest, err := whole.Split(1)
	wantErr(t, err, nil)
	first, second, err := rest.Split(1)
	wantErr(t, err, nil)
	for _, p := range []sema.Permit{part, first, second} {
		p.Release()
	}
	lockInOrder(t, b, a, sema.DiagnoseFull)
	wantKinds(t, j, sema.EventInverted)
}

// TestDiagnose_OrderUnderAPermitWhosePartsAreHandedOver checks that it does not count
// if the parts are handed over to other goroutines.
func TestDiagnose_OrderUnderAPermitWhosePartsAreHandedOver(t *testing.T) {
	j, observe := reports(sema.EventInverted)
	full := sema.Diagnose(sema.DiagnoseFull)
	a, b := sema.New(4, sema.Name("parts a"), full, observe), sema.New(4, sema.Name("parts b"), full, observe)
	whole := mustAcquire(t, a, 4)
	mustAcquire(t, b, 1).Release()
	part, rest, err := whole.Split(1)
	wantErr(t, err, nil)
	var working sync.WaitGroup
	working.Go(part.Release)
	working.Go(rest.Release)
	working.Wait()
	lockInOrder(t, b, a, sema.DiagnoseFull)
	wantKinds(t, j)
}

// TestDiagnose_OrdersUnderAGuard checks that a circle of orders is reported only if its callers can be in it at
// the same time: all of them hold permits of one more semaphore.
func TestDiagnose_OrdersUnderAGuard(t *testing.T) {
	for _, c := range []struct {
		name            string
		forks           int
		capacity        int64 // of the guard; 0: there is none
		weight          int64
		want            bool
		beside, without bool // another semaphore is held as well; at the end, one caller does not hold the guard
	}{
		{name: "no guard", forks: 3, want: true},
		{name: "a lock", forks: 2, capacity: 1, weight: 1},
		{name: "an arbiter of n-1", forks: 5, capacity: 4, weight: 1},
		{name: "an arbiter of n", forks: 5, capacity: 5, weight: 1, want: true},
		{name: "weights that do not fit", forks: 2, capacity: 3, weight: 2},
		{name: "a lock and a pool", forks: 2, capacity: 1, weight: 1, beside: true},
		{name: "a lock that one caller does not hold", forks: 2, capacity: 1, weight: 1, without: true, want: true},
	} {
		for how, level := range map[string]sema.DiagnoseLevel{"context": sema.DiagnoseSampled, "goroutine": sema.DiagnoseFull} {
			t.Run(c.name+" by "+how, func(t *testing.T) {
				j, observe := reports(sema.EventInverted)
				open := func(name string, capacity int64) *sema.Semaphore {
					return sema.New(capacity, sema.Name(t.Name()+" "+name), sema.Diagnose(level), observe)
				}
				var forks []*sema.Semaphore
				for i := range c.forks {
					forks = append(forks, open(fmt.Sprint("fork ", i), 1))
				}
				guard, pool := open("guard", max(1, c.capacity)), open("pool", 100)
				for i := range c.forks {
					left, right := sema.Want{Gate: forks[i], N: 1}, sema.Want{Gate: forks[(i+1)%c.forks], N: 1}
					switch {
					case c.beside:
						holdInOrder(t, level, sema.Want{Gate: pool, N: 1}, sema.Want{Gate: guard, N: c.weight}, left, right)
					case c.capacity > 0:
						holdInOrder(t, level, sema.Want{Gate: guard, N: c.weight}, left, right)
					default:
						holdInOrder(t, level, left, right)
					}
				}
				if c.without {
					wantKinds(t, j)
					holdInOrder(t, level, sema.Want{Gate: forks[0], N: 1}, sema.Want{Gate: forks[1], N: 1})
				}
				if c.want {
					wantKinds(t, j, sema.EventInverted)
				} else {
					wantKinds(t, j)
				}
			})
		}
	}
}

// holdInOrder acquires all wants one after the other, and then releases them.
func holdInOrder(t *testing.T, level sema.DiagnoseLevel, wants ...sema.Want) {
	t.Helper()
	ctx := t.Context()
	for _, w := range wants {
		p, err := w.Gate.Acquire(ctx, w.N)
		wantErr(t, err, nil)
		defer p.Release()
		if level != sema.DiagnoseFull { // the context identifies the permit
			held, cancel := p.Context(ctx)
			defer cancel()
			ctx = held
		}
	}
}

func TestDiagnose_AcquireAllIsNoInversion(t *testing.T) {
	j, observe := reports(sema.EventInverted)
	a := sema.New(1, sema.Name("all a"), sema.Diagnose(sema.DiagnoseFull), observe)
	b := sema.New(1, sema.Name("all b"), sema.Diagnose(sema.DiagnoseFull), observe)
	for range 2 {
		p, err := sema.AcquireAll(t.Context(), sema.Want{Gate: a, N: 1}, sema.Want{Gate: b, N: 1})
		wantErr(t, err, nil)
		p.Release()
		a, b = b, a
	}
	wantKinds(t, j)
}

func TestDiagnose_SelfDeadlockIsSuspected(t *testing.T) {
	for _, level := range []sema.DiagnoseLevel{sema.DiagnoseSampled, sema.DiagnoseFull} {
		j, observe := reports(sema.EventDeadlocked)
		var stop context.CancelFunc
		whenReported := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventDeadlocked {
				stop()
			}
		}))
		// WarnHold records every acquire, at any level.
		s := sema.New(1, sema.Name("self"), sema.Diagnose(level), sema.WarnHold(time.Hour), observe, whenReported)
		p := mustAcquire(t, s, 1)
		held, cancel := p.Context(t.Context())
		var ctx context.Context
		ctx, stop = context.WithTimeout(held, time.Minute)
		_, err := s.Acquire(ctx, 1)
		wantErr(t, err, context.Canceled)
		stop()
		cancel()
		p.Release()
		e := wantKinds(t, j, sema.EventDeadlocked)
		if !strings.Contains(e[0].Report, "suspected") || !strings.Contains(e[0].Report, "holds all 1 permits in use") {
			t.Errorf("%s", e[0].Report)
		}
	}
}

func TestDiagnose_DeadlockAmongGoroutinesIsSuspectedOnce(t *testing.T) {
	j, observe := reports(sema.EventDeadlocked)
	a := sema.New(1, sema.Name("ring a"), sema.Diagnose(sema.DiagnoseFull), observe)
	b := sema.New(1, sema.Name("ring b"), sema.Diagnose(sema.DiagnoseFull), observe)
	ctx, cancel := context.WithCancel(t.Context())
	var both, ended sync.WaitGroup
	both.Add(2)
	for _, pair := range [][2]*sema.Semaphore{{a, b}, {b, a}} {
		ended.Go(func() {
			p := mustAcquire(t, pair[0], 1)
			defer p.Release()
			both.Done()
			both.Wait()
			pair[1].Acquire(ctx, 1)
		})
	}
	waitersReach(t, 2, func() int { return a.Stats().Waiters + b.Stats().Waiters })
	late := acquiring(ctx, a, 1) // joins a deadlock that was reported already
	waitersReach(t, 3, func() int { return a.Stats().Waiters + b.Stats().Waiters })
	waitersReach(t, 1, func() int { j.mu.Lock(); defer j.mu.Unlock(); return len(j.events) })
	time.Sleep(10 * time.Millisecond)
	cancel()
	ended.Wait()
	<-late
	e := wantKinds(t, j, sema.EventDeadlocked)
	for _, want := range []string{"suspected", `1 of "ring a"`, `1 of "ring b"`, "TestDiagnose_DeadlockAmongGoroutines"} {
		if !strings.Contains(e[0].Report, want) {
			t.Errorf("no %q in\n%s", want, e[0].Report)
		}
	}
}

func TestDiagnose_SampledRecordsSomeAndLosesNoPermit(t *testing.T) {
	j := new(journal)
	s := sema.New(5000, sema.Name("sampled"), sema.Diagnose(sema.DiagnoseSampled), sema.Observe(j))
	var held []sema.Permit
	for range 5000 {
		held = append(held, mustAcquire(t, s, 1))
	}
	recorded := 0
	for _, h := range sema.Holders() {
		if h.Name == "sampled" {
			recorded++
		}
	}
	if recorded == 0 || recorded > 500 { // 39 expected
		t.Errorf("%d of 5000 recorded", recorded)
	}
	for _, p := range held {
		p.Release()
	}
	wantStats(t, s, 0, 0)
}

func TestDiagnose_EnvironmentSetsTheLevelOfTheProcess(t *testing.T) {
	if os.Getenv("SEMA_TEST_CHILD") == "1" {
		s := sema.New(1, sema.Name("by environment"))
		leak(t, s)
		if len(sema.Holders()) == 1 {
			os.Stdout.WriteString("recorded\n")
		}
		quiet := sema.New(1, sema.Diagnose(sema.DiagnoseOff))
		leak(t, quiet)
		if len(sema.Holders()) == 1 {
			os.Stdout.WriteString("override\n")
		}
		return
	}
	for level, want := range map[string]string{"full": "recorded\noverride\n", "loud": "SEMA_DEBUG ignored", "": "PASS"} {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), "SEMA_TEST_CHILD=1", "SEMA_DEBUG="+level)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("SEMA_DEBUG=%s: %v, want %q in\n%s", level, err, want, out)
		}
	}
}

// TestDiagnose_InnerPermitDoesNotKeepALeakedOuterOneAlive checks that a record, which
// lists what its holder held, does not refer to the handles.
func TestDiagnose_InnerPermitDoesNotKeepALeakedOuterOneAlive(t *testing.T) {
	leaked, observe := leakReports()
	outer := sema.New(1, sema.Name("outer"), sema.Diagnose(sema.DiagnoseFull), observe)
	inner := sema.New(1, sema.Name("inner"), sema.Diagnose(sema.DiagnoseFull), observe)
	held := acquireInside(t, outer, inner)
	if e := collectUntil(t, leaked); e.Name != "outer" {
		t.Errorf("%+v", e)
	}
	held.Release()
}

//go:noinline
func acquireInside(t *testing.T, outer, inner *sema.Semaphore) sema.Permit {
	p := mustAcquire(t, outer, 1)
	ctx, cancel := p.Context(t.Context())
	defer cancel()
	q, err := inner.Acquire(ctx, 1)
	wantErr(t, err, nil)
	return q
}

// TestDiagnose_ReleaseIsNotReportedAsALeak runs the garbage collector all the time while
// permits are acquired and released, so that a handle may be collected during a release.
func TestDiagnose_ReleaseIsNotReportedAsALeak(t *testing.T) {
	s := sema.New(8, sema.Diagnose(sema.DiagnoseFull), sema.ReclaimLeaks, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventLeaked {
			t.Error(e.Report)
		}
	})))
	stop := make(chan struct{})
	var collecting sync.WaitGroup
	collecting.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	for range 2000 / raceFactor {
		p := mustAcquire(t, s, 2)
		a, b, err := p.Split(1)
		wantErr(t, err, nil)
		a.Release()
		b.Release()
	}
	close(stop)
	collecting.Wait()
	wantStats(t, s, 0, 0)
}

func TestWarnHold_OfAPartCountsFromTheAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, observe := reports(sema.EventOverheld)
		s := sema.New(2, sema.WarnHold(time.Second), observe)
		whole := mustAcquire(t, s, 2)
		time.Sleep(600 * time.Millisecond)
		a, b, err := whole.Split(1)
		wantErr(t, err, nil)
		a.Release()
		time.Sleep(500 * time.Millisecond)
		wantKinds(t, j, sema.EventOverheld)
		b.Release()
	})
}
