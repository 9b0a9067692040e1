package sematest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

// table returns a dinner of n philosophers that take the left fork first. If
// lowerFirst, each takes the fork of the lower number first, so that no circle can form.
func table(n int, lowerFirst bool) func(w *World) {
	return func(w *World) {
		forks := make([]sema.Gate, n)
		for i := range forks {
			forks[i] = w.Gate(sema.New(1, sema.Name(fmt.Sprint("fork ", i))))
		}
		for i := range forks {
			first, second := i, (i+1)%n
			if lowerFirst {
				first, second = min(first, second), max(first, second)
			}
			w.Go(fmt.Sprint("philosopher ", i), func(ctx context.Context) {
				a, err := forks[first].Acquire(ctx, 1)
				if err != nil {
					return
				}
				defer a.Release()
				if b, err := forks[second].Acquire(ctx, 1); err == nil {
					b.Release()
				}
			})
		}
	}
}

// boundedBuffer returns a producer and a consumer of a buffer of one. If mutexFirst, they lock the
// mutex before they wait for room or for an item.
func boundedBuffer(mutexFirst bool) func(w *World) {
	return func(w *World) {
		room := w.Counter(sema.NewCounter(1, 1, sema.Name("room")))
		items := w.Counter(sema.NewCounter(0, 1, sema.Name("items")))
		mu := w.Mutex("buffer")
		var buffer []int
		use := func(ctx context.Context, from, to *Counter, change func()) {
			if mutexFirst {
				mu.Lock()
				defer mu.Unlock()
			}
			if from.Wait(ctx, 1) != nil {
				return
			}
			if !mutexFirst {
				mu.Lock()
			}
			change()
			if !mutexFirst {
				mu.Unlock()
			}
			to.Post(1)
		}
		w.Always("at most one item", func() bool { return len(buffer) <= 1 })
		w.Go("producer", func(ctx context.Context) {
			for i := range 2 {
				use(ctx, room, items, func() { buffer = append(buffer, i) })
			}
		})
		w.Go("consumer", func(ctx context.Context) {
			for range 2 {
				use(ctx, items, room, func() { buffer = buffer[1:] })
			}
		})
	}
}

// gateAndMutex returns two goroutines that use a semaphore and a mutex, in one order or in both.
func gateAndMutex(bothOrders bool) func(w *World) {
	return func(w *World) {
		db, mu := w.Gate(sema.New(1, sema.Name("db"))), w.Mutex("cache")
		w.Go("writer", func(ctx context.Context) {
			p, err := db.Acquire(ctx, 1)
			if err != nil {
				return
			}
			defer p.Release()
			mu.Lock()
			defer mu.Unlock()
		})
		w.Go("reader", func(ctx context.Context) {
			if bothOrders {
				mu.Lock()
				defer mu.Unlock()
			}
			if p, err := db.Acquire(ctx, 1); err == nil {
				p.Release()
			}
		})
	}
}

// A simple is a semaphore of one permit, from a textbook. If lossy, a release that comes
// between the check of a waiter and its wait wakes no waiter.
type simple struct {
	mu    sync.Locker
	free  bool
	queue []chan struct{}
	wake  chan struct{}
	lossy bool
}

func (s *simple) acquire() {
	s.mu.Lock()
	for !s.free {
		wait := s.wake
		if !s.lossy {
			wait = make(chan struct{}, 1)
			s.queue = append(s.queue, wait)
		}
		s.mu.Unlock()
		<-wait
		s.mu.Lock()
	}
	s.free = false
	s.mu.Unlock()
}

func (s *simple) release() {
	s.mu.Lock()
	s.free = true
	if s.lossy {
		select {
		case s.wake <- struct{}{}: // to a goroutine that waits already
		default:
		}
	} else if len(s.queue) > 0 {
		s.queue[0] <- struct{}{}
		s.queue = s.queue[1:]
	}
	s.mu.Unlock()
}

func textbook(lossy bool) func(w *World) {
	return func(w *World) {
		s := &simple{mu: w.Mutex("semaphore"), free: true, wake: make(chan struct{}), lossy: lossy}
		for i := range 3 {
			w.Go(fmt.Sprint("worker ", i), func(context.Context) {
				s.acquire()
				w.Yield()
				s.release()
			})
		}
	}
}

// plain returns the options of most tests.
func plain(schedules int) options { return options{schedules: schedules, steps: 10_000} }

func TestExplore_FindsPlantedFaults(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]struct {
		wrong, right func(w *World)
	}{
		"the naive dining table deadlocks":             {table(3, false), table(3, true)},
		"five philosophers deadlock":                   {table(5, false), table(5, true)},
		"a mutex locked before the capacity deadlocks": {boundedBuffer(true), boundedBuffer(false)},
		"a semaphore and a mutex in both orders":       {gateAndMutex(true), gateAndMutex(false)},
		"a lost wake-up":                               {textbook(true), textbook(false)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := explore(t, p.wrong, plain(2000))
			if f == nil {
				t.Fatal("2000 schedules have not found it")
			}
			if !strings.HasPrefix(f.why, "deadlock") {
				t.Errorf("found %q, want a deadlock", f.why)
			}
			o := plain(0)
			o.seed, o.replay = f.seed, true
			if again := explore(t, p.wrong, o); again == nil || again.String() != f.String() {
				t.Errorf("the replay differs:\n%v\n%v", f, again)
			}
			if f := explore(t, p.right, plain(2000)); f != nil {
				t.Errorf("the right program fails: %v", f)
			}
		})
	}
}

func TestExplore_NamesTheCircle(t *testing.T) {
	t.Parallel()
	f := explore(t, table(2, false), plain(1000))
	if f == nil {
		t.Fatal("no deadlock found")
	}
	for _, want := range []string{
		`philosopher 0 waits after "acquires 1 of fork 1", holds 1 of fork 0`,
		`philosopher 1 waits after "acquires 1 of fork 0", holds 1 of fork 1`,
		fmt.Sprintf("sematest.Seed(%#x)", f.seed), "philosopher 0 acquires 1 of fork 0",
	} {
		if !strings.Contains(f.String(), want) {
			t.Errorf("no %q in the report:\n%v", want, f)
		}
	}
}

// TestExplore_FindsRareOrders has a fault that needs a goroutine to be interrupted at one
// of many steps, and others to run to their ends meanwhile.
func TestExplore_FindsRareOrders(t *testing.T) {
	t.Parallel()
	f := explore(t, func(w *World) {
		var state, others int
		w.Go("slow", func(context.Context) {
			for i := range 20 {
				state = i
				w.Yield()
			}
			state = -1
		})
		for i := range 3 {
			w.Go(fmt.Sprint("other ", i), func(context.Context) {
				for range 10 {
					w.Yield()
				}
				if state == 19 {
					others++
				}
			})
		}
		w.Always("not all others end at state 19", func() bool { return others < 3 })
	}, plain(5000))
	if f == nil || f.seed%2 == 0 {
		t.Errorf("found %v, want it found by changing priorities", f)
	}
}

func TestExplore_ReportsEachKindOfFailure(t *testing.T) {
	t.Parallel()
	for want, program := range map[string]func(w *World){
		"violated: x stays 0": func(w *World) {
			x := 0
			w.Always("x stays 0", func() bool { return x == 0 })
			w.Go("a", func(context.Context) { x = 1 })
		},
		"violated: x is 1 at the end": func(w *World) {
			x := 0
			w.Finally("x is 1 at the end", func() bool { return x == 1 })
			w.Go("a", func(context.Context) { x = 2 })
		},
		"a panics: oops": func(w *World) { w.Go("a", func(context.Context) { panic("oops") }) },
		"wrong: 7":       func(w *World) { w.Go("a", func(context.Context) { w.Errorf("wrong: %d", 7) }) },
		"no end after 100 steps": func(w *World) {
			w.Go("a", func(context.Context) {
				for {
					w.Yield()
				}
			})
		},
		"b panics: sematest: unlock of unlocked mutex m": func(w *World) {
			m := w.Mutex("m")
			w.Go("b", func(context.Context) { m.Unlock() })
		},
	} {
		o := plain(10)
		o.steps = 100
		if f := explore(t, program, o); f == nil || !strings.HasPrefix(f.why, want) {
			t.Errorf("found %v, want %q", f, want)
		}
	}
}

func TestOptions_BoundStepsAndReplayASeed(t *testing.T) {
	t.Parallel()
	endless := func(w *World) {
		w.Go("a", func(context.Context) {
			for {
				w.Yield()
			}
		})
	}
	o := plain(10)
	Steps(7)(&o)
	if f := explore(t, endless, o); f == nil || !strings.HasPrefix(f.why, "no end after 7 steps") {
		t.Errorf("found %v, want no end after 7 steps", f)
	}
	Seed(42)(&o)
	runs := 0
	f := explore(t, func(w *World) { runs++; endless(w) }, o)
	if f == nil || f.seed != 42 || runs != 1 {
		t.Errorf("found %v in %d runs, want the schedule of seed 42 alone", f, runs)
	}
}

func TestExplore_TimePassesWhenAllWait(t *testing.T) {
	t.Parallel()
	Explore(t, func(w *World) {
		g := w.Gate(sema.New(1, sema.MaxWait(time.Hour)))
		w.Go("sleeper", func(ctx context.Context) {
			p, err := g.Acquire(ctx, 1)
			if err == nil {
				time.Sleep(2 * time.Hour)
				p.Release()
			}
		})
		w.Go("waiter", func(ctx context.Context) {
			p, err := g.Acquire(ctx, 1)
			if err != nil && !errors.Is(err, sema.ErrTimeout) {
				w.Errorf("waited: %v", err)
			}
			p.Release()
		})
	}, Schedules(200))
}

func TestSlow_LetsTimeoutsExpireBetweenSteps(t *testing.T) {
	t.Parallel()
	program := func(w *World) {
		g := w.Gate(sema.New(1, sema.MaxWait(time.Second)))
		for i := range 2 {
			w.Go(fmt.Sprint("worker ", i), func(ctx context.Context) {
				p, err := g.Acquire(ctx, 1)
				if err != nil {
					w.Errorf("acquire: %v", err)
				}
				w.Yield()
				p.Release()
			})
		}
	}
	if f := explore(t, program, plain(500)); f != nil {
		t.Errorf("without Slow: %v", f)
	}
	o := plain(500)
	o.slow = time.Minute
	if f := explore(t, program, o); f == nil {
		t.Error("with Slow no acquire timed out")
	}
}

// TestWorld_GateKeepsPermits checks that wrapped permits split, are lost and end like those
// of the gate.
func TestWorld_GateKeepsPermits(t *testing.T) {
	t.Parallel()
	Explore(t, func(w *World) {
		inner := sema.New(3)
		g := w.Gate(inner)
		w.Finally("all permits are free", func() bool { return inner.Stats().Free == 3 })
		for i := range 2 {
			w.Go(fmt.Sprint("worker ", i), func(ctx context.Context) {
				p, err := g.Acquire(ctx, 3)
				if err != nil {
					w.Errorf("acquire: %v", err)
					return
				}
				a, b, err := p.Split(1)
				if err != nil || p.Held() || a.Weight() != 1 || b.Weight() != 2 {
					w.Errorf("split: %v", err)
				}
				b.Release()
				a.Release()
				a.Release()
			})
		}
	}, Schedules(300))
}
