//go:build linux

package host_test

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

func TestSemaphore_NilContextIsInvalid(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 1)
	contextType := reflect.TypeFor[context.Context]()
	value, checked := reflect.ValueOf(sem), 0
	for i := range value.NumMethod() {
		method := value.Method(i)
		if method.Type().NumIn() == 0 || method.Type().In(0) != contextType {
			continue
		}
		args := []reflect.Value{reflect.Zero(contextType)}
		for k := 1; k < method.Type().NumIn(); k++ {
			args = append(args, reflect.Zero(method.Type().In(k)))
		}
		results := method.Call(args)
		err, _ := results[len(results)-1].Interface().(error)
		if !errors.Is(err, sema.ErrInvalid) || sema.Hint(err) == "" {
			t.Errorf("%s: %v, want ErrInvalid and a hint", value.Type().Method(i).Name, err)
		}
		checked++
	}
	if checked < 7 {
		t.Errorf("%d methods take a context, want Acquire, TryAcquire, Resize, SetMaxWaiters, Drain, Resume and Inspect", checked)
	}
}

// TestSemaphore_ErrorsHaveHints checks that an error text contains facts only, and that
// Hint and Reason return the advice and a reason for metrics.
func TestSemaphore_ErrorsHaveHints(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, badName := host.Open("a b", 1, host.Dir(dir))
	_, badCapacity := host.Open("a", -7, host.Dir(dir))
	_, noGroup := host.Open("a", 1, host.ShareWithGroup("no such group"))
	_, noDir := host.Open("a", 1, host.Dir(""))
	_, missing := host.Open("a", host.Existing, host.Dir(dir))
	_, nowhere := host.Open("a", 1, host.Dir(filepath.Join(dir, "none")))
	gone := host.Remove("none", host.Dir(dir))
	if !errors.Is(gone, fs.ErrNotExist) || strings.Contains(gone.Error(), "open") || strings.Contains(sema.Hint(gone), "create") {
		t.Errorf("Remove: %v, hint %q", gone, sema.Hint(gone))
	}
	sem, _, _ := open(t, 1)
	for about, err := range map[string]error{
		"name": badName, "capacity": badCapacity, "group": noGroup, "dir": noDir, "missing": missing, "remove": gone, "no directory": nowhere,
		"resize": sem.Resize(context.Background(), -1), "max waiters": sem.SetMaxWaiters(context.Background(), -2),
		"deleted": host.ErrDeleted, "damaged": host.ErrDamaged,
	} {
		hint := sema.Hint(err)
		if err == nil || hint == "" || strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), ";") {
			t.Errorf("%s: %v, hint %q", about, err, hint)
		}
	}
	if got := sema.Reason(host.ErrDamaged) + " " + sema.Reason(host.ErrDeleted); got != "damaged deleted" {
		t.Error(got)
	}
}

func TestSemaphore_MaxWait(t *testing.T) {
	t.Parallel()
	var kinds []sema.EventKind
	sem, dir, name := open(t, 1, sema.MaxWait(5*time.Millisecond), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventTimedOut {
			kinds = append(kinds, e.Kind)
		}
	})))
	p := mustAcquire(t, sem, 1)
	_, err := sem.Acquire(context.Background(), 1)
	wantErr(t, err, sema.ErrTimeout)
	wantErr(t, err, context.DeadlineExceeded)
	if text := err.Error(); !strings.Contains(text, "1 of 1 permits") || !strings.Contains(text, "5ms (1 in use, 0 waiting)") {
		t.Error(text)
	}
	if len(kinds) != 1 {
		t.Errorf("%d timeouts reported, want 1", len(kinds))
	}
	// MaxWait applies to this opener alone: another one waits as long as its context
	// allows.
	served := acquiring(t, openIn(t, dir, name, 1), 1)
	awaitStats(t, sem, 1, 1)
	_, err = sem.Acquire(context.Background(), 1)
	wantErr(t, err, sema.ErrTimeout)
	p.Release()
	(<-served).Release()
	awaitStats(t, sem, 0, 0)
}

func TestSemaphore_MaxWaiters(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1, sema.MaxWaiters(2))
	p := mustAcquire(t, sem, 1)
	first := acquiring(t, sem, 1)
	awaitStats(t, sem, 1, 1)
	other := startUser(t, dir, name, 1)
	other.Send("acquire 1")
	awaitStats(t, sem, 1, 2)
	for _, s := range []*host.Semaphore{sem, openIn(t, dir, name, 1)} {
		_, err := s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrQueueFull)
		wantErr(t, err, sema.ErrFull)
		if !strings.Contains(err.Error(), "at most 2 waiters (1 in use, 2 waiting)") {
			t.Error(err)
		}
	}
	other.Send("acquire 1")
	other.Expect("queue full")
	// A killed waiter does not count.
	other.End()
	second := acquiring(t, sem, 1)
	awaitStats(t, sem, 1, 2)
	if err := sem.SetMaxWaiters(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	third := acquiring(t, sem, 1)
	awaitStats(t, sem, 1, 3)
	if err := sem.SetMaxWaiters(context.Background(), sema.NoWaiters); err != nil {
		t.Fatal(err)
	}
	_, err := sem.Acquire(context.Background(), 1)
	wantErr(t, err, sema.ErrQueueFull)
	p.Release()
	for _, c := range []<-chan sema.Permit{first, second, third} { // waiters that were queued before stay
		(<-c).Release()
	}
	mustAcquire(t, sem, 1).Release() // succeeds without waiting
	_, err = sem.TryAcquire(context.Background(), 2)
	wantErr(t, err, sema.ErrTooLarge)
}

// TestSemaphore_MaxWaitersIsExactAmongProcesses lets several processes join at the same
// time.
func TestSemaphore_MaxWaitersIsExactAmongProcesses(t *testing.T) {
	t.Parallel()
	const bound, processes, callers = 5, 4, 3
	sem, dir, name := open(t, 1, sema.MaxWaiters(bound))
	defer mustAcquire(t, sem, 1).Release()
	var others []*proctest.Process
	for range processes {
		others = append(others, startUser(t, dir, name, 1))
	}
	for range 50 {
		for _, other := range others {
			other.Send("join %d", callers)
		}
		waiters, rejected := 0, 0
		eventually(t, "all callers wait or are rejected", func() bool {
			rejected = 0
			for _, other := range others {
				other.Send("rejected")
				n, err := strconv.Atoi(other.Receive())
				if err != nil {
					t.Fatal(err)
				}
				rejected += n
			}
			waiters = sem.Stats().Waiters
			return waiters+rejected == processes*callers
		})
		if waiters != bound {
			t.Fatalf("%d callers wait and %d were rejected, want %d waiters", waiters, rejected, bound)
		}
		for _, other := range others {
			other.Send("leave")
			other.Expect("left")
		}
		awaitStats(t, sem, 1, 0)
	}
}

func TestSemaphore_Drain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	sem, dir, name := open(t, 2)
	other := startUser(t, dir, name, 2)
	other.Send("acquire 2")
	other.Expect("acquired 2")
	waiter := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(ctx, 1)
		waiter <- err
	}()
	awaitStats(t, sem, 2, 1)
	other.Send("acquire 1")
	awaitStats(t, sem, 2, 2)
	brief, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	err := sem.Drain(brief)
	wantErr(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "2 of 2 permits are still held") || !strings.Contains(sema.Hint(err), "Inspect") {
		t.Error(err)
	}
	wantErr(t, <-waiter, sema.ErrDraining)
	other.Expect("draining")
	for _, n := range []int64{0, 1} {
		_, err = sem.Acquire(ctx, n)
		wantErr(t, err, sema.ErrDraining)
		_, err = sem.TryAcquire(ctx, n)
		wantErr(t, err, sema.ErrDraining)
	}
	if st := sem.Stats(); !st.Draining || st.InUse != 2 || !strings.HasSuffix(sem.String(), ", draining") {
		t.Errorf("%+v %v", st, sem)
	}
	// Resize does not end draining.
	if err := sem.Resize(ctx, 3); err != nil {
		t.Fatal(err)
	}
	_, err = sem.TryAcquire(ctx, 1)
	wantErr(t, err, sema.ErrDraining)
	// Resume ends a Drain that waits.
	drained := make(chan error, 1)
	go func() { drained <- sem.Drain(ctx) }()
	if err := sem.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	for { // until Drain has started and waits
		select {
		case err := <-drained:
			if err == nil || !strings.Contains(err.Error(), "resumed") {
				t.Error(err)
			}
		case <-time.After(time.Millisecond):
			if err := sem.Resume(ctx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		break
	}
	mustAcquire(t, sem, 1).Release()
	// Drain returns when all permits are released, in any process.
	go func() { drained <- sem.Drain(ctx) }()
	eventually(t, "the semaphore is draining", func() bool { return sem.Stats().Draining })
	other.Send("release")
	other.Expect("released")
	if err := <-drained; err != nil {
		t.Error(err)
	}
	// The state is stored.
	other.End()
	sem.Close()
	again := openIn(t, dir, name, 3)
	_, err = again.TryAcquire(ctx, 1)
	wantErr(t, err, sema.ErrDraining)
	if err := again.Resume(ctx); err != nil {
		t.Fatal(err)
	}
	mustAcquire(t, again, 3)
}

// TestSemaphore_DrainEndsHandOff checks that no permit is handed off to a waiter while
// draining.
func TestSemaphore_DrainEndsHandOff(t *testing.T) {
	t.Parallel()
	sem, _, _ := openWithoutPolling(t, 1)
	p := mustAcquire(t, sem, 1)
	waiter := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(context.Background(), 1)
		waiter <- err
	}()
	awaitStats(t, sem, 1, 1)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	wantErr(t, sem.Drain(ended), context.Canceled)
	p.Release()
	wantErr(t, <-waiter, sema.ErrDraining)
	awaitStats(t, sem, 0, 0)
}

func TestSemaphore_CloseEndsDrain(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	defer mustAcquire(t, openIn(t, dir, name, 1), 1).Release()
	drained := make(chan error, 1)
	go func() { drained <- sem.Drain(context.Background()) }()
	eventually(t, "the semaphore is draining", func() bool { return sem.Stats().Draining })
	sem.Close()
	wantErr(t, <-drained, sema.ErrClosed)
}

func TestSemaphore_StatsMakesNoSystemCalls(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 4)
	other := startUser(t, dir, name, 4)
	other.Send("acquire 3")
	other.Expect("acquired 3")
	other.Send("acquire 2")
	awaitStats(t, sem, 3, 1)
	want := sema.Stats{Capacity: 4, InUse: 3, Free: 1, Waiters: 1}
	if st := sem.Stats(); st != want {
		t.Errorf("%+v, want %+v", st, want)
	}
	other.End()
	if st := sem.Stats(); st != want {
		t.Errorf("%+v after the process was killed, want the last known state %+v", st, want)
	}
	awaitStats(t, sem, 0, 0) // calls Inspect
	want = sema.Stats{Capacity: 4, Free: 4}
	if st := sem.Stats(); st != want {
		t.Errorf("%+v after Inspect, want %+v", st, want)
	}
	p := mustAcquire(t, sem, 2)
	sem.Close()
	want = sema.Stats{Capacity: 4, InUse: 2, Free: 2, Closed: true, Counts: sema.Counts{Acquired: 1}}
	if st := sem.Stats(); st != want {
		t.Errorf("%+v after Close, want %+v", st, want)
	}
	p.Release()
	want.InUse, want.Free = 0, 4
	if st := sem.Stats(); st != want {
		t.Errorf("%+v after the file was closed, want %+v", st, want)
	}
}

func TestSemaphore_Counts(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1, sema.MaxWait(time.Millisecond), sema.MaxWaiters(1))
	p := mustAcquire(t, sem, 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	sem.Acquire(ctx, 1)                   // the context has ended already
	sem.Acquire(context.Background(), -1) // invalid
	_, err := sem.Acquire(context.Background(), 1)
	wantErr(t, err, sema.ErrTimeout)
	_, err = sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	_, err = sem.Acquire(context.Background(), 2)
	wantErr(t, err, sema.ErrTooLarge)
	unbounded := openIn(t, dir, name, 1)
	ctx, cancel = context.WithCancel(context.Background())
	cancelled := make(chan error, 1)
	go func() {
		_, err := unbounded.Acquire(ctx, 1)
		cancelled <- err
	}()
	awaitStats(t, sem, 1, 1)
	_, err = sem.Acquire(context.Background(), 1)
	wantErr(t, err, sema.ErrQueueFull)
	cancel()
	wantErr(t, <-cancelled, context.Canceled)
	served := acquiring(t, unbounded, 1)
	awaitStats(t, sem, 1, 1)
	p.Release()
	(<-served).Release()
	got := sem.Stats().Counts
	if got.WaitTime < time.Millisecond {
		t.Errorf("wait time %v, want at least 1ms", got.WaitTime)
	}
	got.WaitTime = 0
	if want := (sema.Counts{Acquired: 1, Waited: 1, TimedOut: 1, Rejected: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	got = unbounded.Stats().Counts
	got.WaitTime = 0
	if want := (sema.Counts{Acquired: 1, Waited: 2, Cancelled: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
