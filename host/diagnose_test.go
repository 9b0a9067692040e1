//go:build linux

package host_test

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

// events collects the events of diagnostics, and drops the others.
type events struct {
	mu   sync.Mutex
	list []sema.Event
}

func (e *events) Observe(event sema.Event) {
	switch event.Kind {
	case sema.EventInverted, sema.EventDeadlocked, sema.EventLeaked, sema.EventOverheld:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.list = append(e.list, event)
	}
}

func (e *events) all() []sema.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.list)
}

// await waits for the first event, which must be of the given kind, and returns it.
func (e *events) await(t *testing.T, kind sema.EventKind) sema.Event {
	t.Helper()
	eventually(t, kind.String()+" is reported", func() bool { return len(e.all()) > 0 })
	first := e.all()[0]
	if first.Kind != kind {
		t.Fatalf("%v: %s", first.Kind, first.Report)
	}
	return first
}

// diagnosed opens a semaphore with full diagnostics.
func diagnosed(t *testing.T, capacity int64, opts ...host.Option) (*host.Semaphore, *events, string) {
	t.Helper()
	e := &events{}
	sem, _, _ := open(t, capacity, append(opts, sema.Diagnose(sema.DiagnoseFull), sema.Observe(e), sema.Name(t.Name()))...)
	return sem, e, t.Name()
}

func TestDiagnose_InversionOfHostAndProcess(t *testing.T) {
	t.Parallel()
	sem, e, name := diagnosed(t, 2)
	local := sema.New(2, sema.Name(name+" local"), sema.Diagnose(sema.DiagnoseFull), sema.Observe(e))
	order := func(first, second sema.Gate) {
		p := mustAcquire(t, first, 1)
		q := mustAcquire(t, second, 1)
		q.Release()
		p.Release()
	}
	order(sem, local)
	if found := e.all(); len(found) > 0 {
		t.Fatalf("%+v", found)
	}
	order(local, sem)
	found := e.await(t, sema.EventInverted)
	if !strings.Contains(found.Report, name+" → "+name+" local") || !strings.Contains(found.Report, "diagnose_test.go") {
		t.Error(found.Report)
	}
}

// TestDiagnose_TryIsNoInversion checks that TryAcquire closes no cycle, because it does
// not wait.
func TestDiagnose_TryIsNoInversion(t *testing.T) {
	t.Parallel()
	sem, e, name := diagnosed(t, 2)
	local := sema.New(2, sema.Name(name+" local"), sema.Diagnose(sema.DiagnoseFull), sema.Observe(e))
	p, q := mustAcquire(t, sem, 1), mustAcquire(t, local, 1)
	q.Release()
	p.Release()
	p = mustAcquire(t, local, 1)
	q, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	q.Release()
	p.Release()
	if found := e.all(); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

func TestDiagnose_SelfDeadlock(t *testing.T) {
	t.Parallel()
	sem, e, name := diagnosed(t, 2)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p, err := sem.Acquire(ctx, 2)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Release()
		if _, err := sem.Acquire(ctx, 1); err == nil {
			t.Error("acquired permits that the goroutine itself holds")
		}
	}()
	found := e.await(t, sema.EventDeadlocked)
	if !strings.Contains(found.Report, "holds all 2 permits in use") || !strings.Contains(found.Report, name) || !strings.Contains(found.Site, "diagnose_test.go") {
		t.Errorf("%+v", found)
	}
	cancel()
	<-ended
}

// TestDiagnose_OtherProcessesAreNoDeadlock checks that no deadlock is reported if
// another process holds permits, because it may release them.
func TestDiagnose_OtherProcessesAreNoDeadlock(t *testing.T) {
	t.Parallel()
	e := &events{}
	sem, dir, name := open(t, 2, sema.Diagnose(sema.DiagnoseFull), sema.Observe(e))
	other := startUser(t, dir, name, 2)
	other.Send("acquire 1")
	other.Expect("acquired 1")
	p, err := sem.Acquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	time.AfterFunc(1500*time.Millisecond, func() { other.Send("release") }) // after the check for deadlocks
	q, err := sem.Acquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	q.Release()
	if found := e.all(); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

func TestDiagnose_ReleaseInAStartedGoroutineIsNoDeadlock(t *testing.T) {
	t.Parallel()
	sem, e, _ := diagnosed(t, 1)
	var wg sync.WaitGroup
	for range 3 {
		p, err := sem.Acquire(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer p.Release()
			time.Sleep(1200 * time.Millisecond) // until after the check for deadlocks
		})
	}
	wg.Wait()
	if found := e.all(); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

//go:noinline
func leak(t *testing.T, sem *host.Semaphore) {
	t.Helper()
	if _, err := sem.Acquire(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
}

func TestDiagnose_LeakIsReportedWithItsSite(t *testing.T) {
	t.Parallel()
	for about, opts := range map[string][]host.Option{"kept": nil, "reclaimed": {sema.ReclaimLeaks}} {
		t.Run(about, func(t *testing.T) {
			sem, e, name := diagnosed(t, 3, opts...)
			leak(t, sem)
			eventually(t, "the leak is reported", func() bool { runtime.GC(); return len(e.all()) > 0 })
			found := e.await(t, sema.EventLeaked)
			if found.Name != name || found.Weight != 2 || !strings.Contains(found.Site, "diagnose_test.go") || !strings.Contains(found.Report, "host_test.leak") {
				t.Errorf("%+v", found)
			}
			if opts == nil {
				awaitStats(t, sem, 2, 0)
			} else {
				awaitStats(t, sem, 0, 0)
			}
		})
	}
}

func TestDiagnose_WarnHold(t *testing.T) {
	t.Parallel()
	e := &events{}
	sem, _, name := open(t, 1, sema.WarnHold(time.Millisecond), sema.Observe(e))
	p := mustAcquire(t, sem, 1)
	if found := e.await(t, sema.EventOverheld); found.Name != name || !strings.Contains(found.Report, "diagnose_test.go") {
		t.Errorf("%+v", found)
	}
	p.Release()
}

func TestDiagnose_HoldersAndProfiles(t *testing.T) {
	t.Parallel()
	sem, _, name := diagnosed(t, 3)
	inProfile := func(profile, function string) {
		t.Helper()
		eventually(t, function+" is in "+profile, func() bool {
			var text bytes.Buffer
			if err := pprof.Lookup(profile).WriteTo(&text, 1); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(text.String(), "host_test."+function)
		})
	}
	p := mustAcquire(t, sem, 3)
	inProfile("sema.held", "TestDiagnose_HoldersAndProfiles")
	first, rest, err := p.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	weights := func() (list []int64) {
		for _, h := range sema.Holders() {
			if h.Name == name {
				list = append(list, h.Weight)
			}
		}
		slices.Sort(list)
		return list
	}
	if got := weights(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("holders %v, want 1 and 2", got)
	}
	waiting := acquiring(t, sem, 3)
	awaitStats(t, sem, 3, 1)
	inProfile("sema.waiting", "acquiring")
	first.Release()
	if got := weights(); !slices.Equal(got, []int64{2}) {
		t.Errorf("holders %v, want 2", got)
	}
	rest.Release()
	(<-waiting).Release()
	if got := weights(); len(got) > 0 {
		t.Errorf("holders %v, want none", got)
	}
	awaitStats(t, sem, 0, 0)
}
