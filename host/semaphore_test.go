//go:build linux

package host_test

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

func TestSemaphore_IsAGate(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 4)
	ctx := context.Background()
	ended, end := context.WithCancelCause(ctx)
	cause := errors.New("the cause")
	end(cause)
	for _, c := range []struct {
		about string
		ctx   context.Context
		n     int64
		want  error
	}{
		{"a negative weight", ctx, -1, sema.ErrInvalid},
		{"no context", nil, 1, sema.ErrInvalid},
		{"an ended context", ended, 1, cause},
		{"more than the capacity", ctx, 5, sema.ErrTooLarge},
		{"weight zero", ctx, 0, nil},
	} {
		for _, acquire := range []func(context.Context, int64) (sema.Permit, error){sem.Acquire, sem.TryAcquire} {
			p, err := acquire(c.ctx, c.n)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.about, err, c.want)
			}
			if p.Held() {
				t.Errorf("%s: a permit was acquired", c.about)
			}
		}
	}
	awaitStats(t, sem, 0, 0)
	if sem.Scope() != sema.HostScope {
		t.Errorf("scope %v, want HostScope", sem.Scope())
	}
}

func TestTryAcquire_ErrorContainsNumbers(t *testing.T) {
	t.Parallel()
	sem, _, name := open(t, 4)
	mustAcquire(t, sem, 3)
	_, err := sem.TryAcquire(context.Background(), 2)
	wantErr(t, err, sema.ErrFull)
	for _, part := range []string{name, "2 of 4", "3 in use", "0 waiting"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %q", err, part)
		}
	}
}

func TestRelease_CountsOnce(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 2)
	p, q := mustAcquire(t, sem, 1), mustAcquire(t, sem, 1)
	p.Release()
	p.Release()
	awaitStats(t, sem, 1, 0)
	q.Release()
	awaitStats(t, sem, 0, 0)
}

func TestPermit_SplitDividesTheSlots(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 200)
	// Leave gaps, so that the permit to split has several runs.
	var singles []sema.Permit
	for range 140 {
		singles = append(singles, mustAcquire(t, sem, 1))
	}
	for i := 0; i < len(singles); i += 2 {
		singles[i].Release()
	}
	p := mustAcquire(t, sem, 100)
	for _, n := range []int64{1, 37, 61} {
		awaitStats(t, sem, 170, 0)
		first, rest, err := p.Split(n)
		if err != nil {
			t.Fatal(err)
		}
		if first.Weight() != n || rest.Weight() != p.Weight()-n {
			t.Fatalf("split %d off %d: %d and %d", n, p.Weight(), first.Weight(), rest.Weight())
		}
		p.Release() // inert
		first.Release()
		awaitStats(t, sem, 170-n, 0)
		again := mustAcquire(t, sem, n)
		defer again.Release()
		p = rest
	}
	p.Release()
	awaitStats(t, sem, 169, 0)
}

func TestSemaphore_KeepsOrderWithinAProcess(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 1)
	p := mustAcquire(t, sem, 1)
	const waiters = 20
	order := make(chan int, waiters)
	for i := range waiters {
		go func() {
			p := mustAcquire(t, sem, 1)
			order <- i
			p.Release()
		}()
		awaitStats(t, sem, 1, i+1)
	}
	p.Release()
	for i := range waiters {
		if got := <-order; got != i {
			t.Fatalf("waiter %d was served as number %d", got, i)
		}
	}
}

func TestAcquire_CancelServesLaterWaiters(t *testing.T) {
	t.Parallel()
	sem, _, _ := openWithoutPolling(t, 3)
	cause := errors.New("enough")
	for range 11 {
		p := mustAcquire(t, sem, 2)
		ctx, cancel := context.WithCancelCause(context.Background())
		heavy := make(chan error, 1)
		go func() {
			_, err := sem.Acquire(ctx, 3)
			heavy <- err
		}()
		awaitStats(t, sem, 2, 1)
		light := acquiring(t, sem, 1)
		awaitStats(t, sem, 2, 2)
		cancel(cause)
		wantErr(t, <-heavy, cause)
		(<-light).Release()
		p.Release()
		awaitStats(t, sem, 0, 0)
	}
}

func TestQueue_WaitersBlockOneThread(t *testing.T) {
	threads := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skip("needs /proc")
		}
		return len(tasks)
	}
	sem, _, _ := open(t, 1)
	p := mustAcquire(t, sem, 1)
	before := threads()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() { mustAcquire(t, sem, 1).Release() })
	}
	awaitStats(t, sem, 1, 200)
	if now := threads(); now > before+4*runtime.GOMAXPROCS(0) {
		t.Errorf("%d threads for 200 waiters, %d before", now, before)
	}
	p.Release()
	wg.Wait()
}

func TestSemaphore_GoroutinesConservePermits(t *testing.T) {
	t.Parallel()
	const capacity = 70
	sem, _, _ := open(t, capacity)
	var inUse atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 400 {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(2*time.Millisecond))
				n := rand.Int64N(40) + 1
				p, err := sem.Acquire(ctx, n)
				if err == nil {
					if now := inUse.Add(n); now > capacity {
						t.Errorf("%d in use", now)
					}
					if n > 1 && rand.IntN(4) == 0 {
						if a, b, err := p.Split(rand.Int64N(n-1) + 1); err == nil {
							inUse.Add(-a.Weight())
							a.Release()
							p, n = b, b.Weight()
						}
					}
					runtime.Gosched()
					inUse.Add(-n)
					p.Release()
				}
				cancel()
			}
		})
	}
	wg.Wait()
	awaitStats(t, sem, 0, 0)
	mustAcquire(t, sem, capacity).Release()
}

func TestRelease_HandOffWakesTheNextWaiter(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 5)
	other := startUserWithoutPolling(t, dir, name, 5)
	for range 11 {
		p := mustAcquire(t, sem, 4)
		first := acquiring(t, sem, 4)
		awaitStats(t, sem, 4, 1)
		other.Send("acquire 1") // fits, but is not first
		awaitStats(t, sem, 4, 2)
		p.Release()
		other.Expect("acquired 1")
		(<-first).Release()
		other.Send("release")
		other.Expect("released")
	}
}

func TestSemaphore_ReportsEvents(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var kinds []sema.EventKind
	ctx, cancel := context.WithCancel(context.Background())
	sem, _, _ := open(t, 1, sema.CallSites, sema.Name("label"), sema.MaxWait(time.Millisecond), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		mu.Lock()
		defer mu.Unlock()
		switch e.Kind {
		case sema.EventQueued:
			cancel()
			if e.Waiters != 1 {
				t.Errorf("%+v, want one waiter", e)
			}
			fallthrough
		case sema.EventAcquired, sema.EventCancelled, sema.EventTimedOut, sema.EventRejected:
			if !strings.Contains(e.Site, "_test.go") {
				t.Errorf("%+v has no site", e)
			}
		}
		if e.Name != "label" {
			t.Errorf("%+v has no name", e)
		}
		kinds = append(kinds, e.Kind)
	})))
	background := context.Background()
	p := mustAcquire(t, sem, 1)
	sem.Acquire(ctx, 1)
	sem.Acquire(background, 1)
	sem.TryAcquire(background, 1)
	p.Release()
	sem.Resize(background, 2)
	sem.Drain(background)
	sem.Resume(background)
	sem.Close()
	want := []sema.EventKind{sema.EventAcquired, sema.EventExhausted, sema.EventQueued, sema.EventCancelled, sema.EventQueued, sema.EventTimedOut,
		sema.EventRejected, sema.EventReleased, sema.EventRecovered, sema.EventResized, sema.EventDrained, sema.EventClosed}
	if !slices.Equal(kinds, want) {
		t.Errorf("reported %v, want %v", kinds, want)
	}
}

func TestAcquire_PanickingObserverLeaksNoPermit(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, 1, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
		if e.Kind == sema.EventAcquired {
			panic("observer")
		}
	})))
	func() {
		defer func() { recover() }()
		sem.Acquire(context.Background(), 1)
		t.Error("the panic was swallowed")
	}()
	awaitStats(t, sem, 0, 0)
}

func TestOpen_RejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	dir := host.Dir(t.TempDir())
	for _, name := range []string{"", "..", ".hidden", "a/../b", "/a", "a/", "a//b", "a b", "ä", "a\x00b", "a%b", strings.Repeat("x", 81)} {
		_, err := host.Open(name, 1, dir)
		wantErr(t, err, sema.ErrInvalid)
	}
	for _, capacity := range []int64{-2, host.MaxCapacity + 1} {
		_, err := host.Open("a", capacity, dir)
		wantErr(t, err, sema.ErrInvalid)
	}
	_, err := host.Open("a", host.Existing, dir)
	wantErr(t, err, fs.ErrNotExist)
	if err := host.Remove("a", dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	_, err = host.Open("a", 1, host.Dir(filepath.Join(t.TempDir(), "none")))
	wantErr(t, err, fs.ErrNotExist)
	_, err = host.Open("a", 1, host.ShareWithGroup("no such group"))
	if err == nil {
		t.Error("an unknown group was accepted")
	}
}

func TestList_ReturnsNamesWithSlashes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i, name := range []string{"team/db", "team/gpu:0", "x"} {
		sem := openIn(t, dir, name, int64(i)+1)
		mustAcquire(t, sem, 1)
	}
	os.WriteFile(filepath.Join(dir, "other"), nil, 0o600)
	infos, err := host.List(host.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, info := range infos {
		names = append(names, info.Name)
		if info.Stats.Capacity != int64(i)+1 || info.Stats.InUse != 1 {
			t.Errorf("%+v", info)
		}
	}
	if want := []string{"team/db", "team/gpu:0", "x"}; !slices.Equal(names, want) {
		t.Errorf("listed %q, want %q", names, want)
	}
}

func TestSemaphore_LargestCapacity(t *testing.T) {
	t.Parallel()
	sem, _, _ := open(t, host.MaxCapacity)
	p := mustAcquire(t, sem, host.MaxCapacity-1)
	q := mustAcquire(t, sem, 1)
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrFull)
	p.Release()
	q.Release()
	awaitStats(t, sem, 0, 0)
}
