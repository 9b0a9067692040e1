package growth

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// A lock is what the curves of a process need of a semaphore with one permit.
type lock struct {
	acquire func(ctx context.Context) error
	release func()
}

// locks are the contenders in a process.
var locks = []struct {
	name  string
	rival bool
	make  func() lock
}{
	{"sema.Semaphore", false, func() lock { return ofGate(sema.New(1)) }},
	{"wfq.Queue", false, func() lock { return ofGate(wfq.New(1)) }},
	{"x/sync", true, func() lock {
		s := semaphore.NewWeighted(1)
		return lock{func(ctx context.Context) error { return s.Acquire(ctx, 1) }, func() { s.Release(1) }} //semavet:ignore passed on
	}},
}

// ofGate returns a lock over a gate with one permit.
func ofGate(g sema.Gate) lock {
	var held sema.Permit
	return lock{
		acquire: func(ctx context.Context) error {
			p, err := g.Acquire(ctx, 1)
			if err == nil {
				held = p // only one caller holds the permit
			}
			return err
		},
		release: func() { p := held; p.Release() },
	}
}

// eachLock returns a contender for each lock.
func eachLock(sizes []int, at func(l lock, waiters int) float64) (all []contender) {
	for _, of := range locks {
		all = append(all, contender{of.name, sizes, func(n int) float64 { return at(of.make(), n) }, of.rival})
	}
	return all
}

// processCurves returns the curves of semaphores in a process.
func processCurves() []curve {
	const unit = "ns"
	sizes := tenfold(10, 100_000)
	return []curve{
		{
			name: "process-hand-off", title: "A release while callers wait in a process", size: "waiters", unit: unit, limit: flat,
			note: "From 1,000 waiters on, their stacks do not fit in the cache of a core, of 1 or 2 MB. A hand-off then costs several cache misses, whatever grants it.",
			runs: eachLock(sizes, handOffs),
		},
		{
			name: "process-cancel", title: "A caller joins the queue of a process and gives up", size: "waiters", unit: unit, limit: flat,
			runs: eachLock(sizes, cancels),
		},
		{
			name: "process-memory", title: "Memory of a waiting goroutine", size: "waiters", unit: "bytes", limit: flat,
			note: "The stack of a goroutine is 2,048 bytes of it.",
			runs: eachLock(sizes[2:], memory),
		},
	}
}

// wait queues n callers, each of which holds the permit repeat times. It returns when all
// of them have begun to wait; the permit is held by the caller of wait. done waits for them.
func wait(ctx context.Context, l lock, n, repeat int) (done func()) {
	must(l.acquire(ctx))
	var begun atomic.Int64
	var ended sync.WaitGroup
	for range n {
		ended.Go(func() {
			begun.Add(1)
			for range repeat {
				if l.acquire(ctx) != nil {
					return
				}
				l.release()
			}
		})
	}
	for begun.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	// A goroutine that has begun may not be queued yet. Rivals do not report their waiters.
	time.Sleep(20*time.Millisecond + time.Duration(n)*10*time.Microsecond)
	return ended.Wait
}

// handOffs returns the time of a release and the acquire of the next waiter.
func handOffs(l lock, waiters int) float64 {
	const least = 100_000
	repeat := max(1, least/waiters)
	done := wait(context.Background(), l, waiters, repeat)
	began := time.Now()
	l.release()
	done()
	return float64(time.Since(began)) / float64(waiters*repeat)
}

// cancels returns the time in which a caller joins the queue and leaves it, since its
// context ends.
func cancels(l lock, waiters int) float64 {
	const times = 2000
	ctx, stop := context.WithCancel(context.Background())
	done := wait(ctx, l, waiters, 1)
	began := time.Now()
	for range times {
		one, cancel := context.WithCancel(ctx)
		left := make(chan struct{})
		go func() { l.acquire(one); close(left) }() // fails: the permit is held
		runtime.Gosched()
		cancel()
		<-left
	}
	took := time.Since(began)
	stop()
	done()
	l.release()
	return float64(took) / times
}

// memory returns what a waiter occupies.
func memory(l lock, waiters int) float64 {
	ctx, stop := context.WithCancel(context.Background())
	before := occupied()
	done := wait(ctx, l, waiters, 1)
	after := occupied()
	stop()
	done()
	l.release()
	return max(0, after-before) / float64(waiters)
}

// occupied returns the memory of the heap and of the stacks.
func occupied() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
