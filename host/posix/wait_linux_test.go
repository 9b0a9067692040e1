//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/internal/proctest"
)

// bothWays runs a test with futex_waitv, and without it as on older kernels.
func bothWays(t *testing.T, test func(t *testing.T, prepare func(...*posix.Semaphore))) {
	t.Run("waitv", func(t *testing.T) { test(t, func(...*posix.Semaphore) {}) })
	t.Run("slices", func(t *testing.T) {
		test(t, func(all ...*posix.Semaphore) {
			for _, s := range all {
				s.DisableWaitv()
			}
		})
	})
}

func TestSemaphore_PostWakesAWaiter(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := create(t, 0)
		prepare(s)
		served := startWait(t.Context(), s)
		awaitSleepers(t, s, 1)
		wantState(t, s, 0, 1)
		wantErr(t, s.Post(), nil)
		wantErr(t, result(t, served), nil)
		wantState(t, s, 0, 0)
	})
}

func TestSemaphore_CancelEndsWait(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := create(t, 0)
		prepare(s)
		why := errors.New("why")
		for range 21 {
			ctx, cancel := context.WithCancelCause(t.Context())
			blocked := startWait(ctx, s)
			awaitSleepers(t, s, 1)
			cancel(why)
			if err := result(t, blocked); err != why {
				t.Fatalf("error %v, want the unwrapped cause", err)
			}
		}
		wantState(t, s, 0, 0)
	})
}

func TestSemaphore_CloseWakesWaiters(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := create(t, 0)
		again := openAgain(t, s)
		prepare(s)
		var all []<-chan error
		for range 5 {
			all = append(all, startWait(context.Background(), s))
		}
		awaitQueued(t, s, 4)
		awaitSleepers(t, s, 1)
		s.Close()
		for _, c := range all {
			wantErr(t, result(t, c), sema.ErrClosed)
		}
		wantState(t, again, 0, 0)
	})
}

func TestSemaphore_ServesGoroutinesInOrder(t *testing.T) {
	t.Parallel()
	s := create(t, 0)
	const goroutines, leaver = 10, 4
	served := make(chan int, goroutines)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	for i := range goroutines {
		go func() {
			if i == leaver {
				left <- s.Wait(ctx)
				return
			}
			s.Wait(t.Context())
			served <- i
		}()
		if i == 0 {
			awaitSleepers(t, s, 1)
		}
		awaitQueued(t, s, i)
	}
	cancel()
	wantErr(t, result(t, left), context.Canceled)
	for want := range goroutines {
		if want == leaver {
			continue
		}
		s.Post()
		if got := <-served; got != want {
			t.Fatalf("goroutine %d was served before %d", got, want)
		}
	}
}

// An unnotifiedContext ends without closing Done.
type unnotifiedContext struct {
	context.Context
	ended atomic.Bool
	never chan struct{}
}

func newUnnotifiedContext(t *testing.T) *unnotifiedContext {
	return &unnotifiedContext{Context: t.Context(), never: make(chan struct{})}
}

func (c *unnotifiedContext) Done() <-chan struct{} { return c.never }

func (c *unnotifiedContext) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

func (c *unnotifiedContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// A racingContext ends, and has called its AfterFunc, right after Err was called.
type racingContext struct {
	*unnotifiedContext
	notify   func()
	notified func() bool
}

func (c *racingContext) AfterFunc(notify func()) (stop func() bool) {
	c.notify = notify
	return func() bool { return true }
}

func (c *racingContext) Err() error {
	if c.notify == nil || c.ended.Load() {
		return c.unnotifiedContext.Err()
	}
	c.ended.Store(true)
	c.notify()
	for !c.notified() {
		time.Sleep(10 * time.Microsecond)
	}
	return nil
}

func TestSemaphore_CancelBeforeSleepEndsWait(t *testing.T) {
	t.Parallel()
	s := create(t, 0)
	ctx := &racingContext{unnotifiedContext: newUnnotifiedContext(t), notified: s.Interrupted}
	wantErr(t, result(t, startWait(ctx, s)), context.Canceled)
	wantState(t, s, 0, 0)
}

// TestSemaphore_LeavingWaiterPassesOnTheWakeUp posts when the context of the first
// sleeping waiter has just ended. The wake-up must reach the second waiter.
func TestSemaphore_LeavingWaiterPassesOnTheWakeUp(t *testing.T) {
	t.Parallel()
	for range 100 {
		both := attachments(t, 2, 0)
		leaver, stayer := both[0], both[1]
		ctx := newUnnotifiedContext(t)
		left := startWait(ctx, leaver)
		awaitSleepers(t, leaver, 1)
		stayed := startWait(t.Context(), stayer)
		awaitSleepers(t, stayer, 2)
		ctx.ended.Store(true)
		wantErr(t, stayer.Post(), nil)
		select {
		case err := <-left:
			wantErr(t, err, context.Canceled)
			wantErr(t, result(t, stayed), nil)
			wantState(t, stayer, 0, 0)
			return
		case <-stayed:
			leaver.Close() // a stray signal requeued the leaver behind the stayer: retry
			result(t, left)
		}
	}
	t.Fatal("the leaver was never the first to be woken")
}

// TestSemaphore_PostRacingWithLeavingWaiter does the same with ordinary contexts, and
// with Close.
func TestSemaphore_PostRacingWithLeavingWaiter(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		_, page := sharedPage(t)
		stayer, err := posix.Init(page, 0)
		if err != nil {
			t.Fatal(err)
		}
		for round := range 100 {
			leaver, err := posix.Attach(page)
			if err != nil {
				t.Fatal(err)
			}
			prepare(leaver, stayer)
			ctx, cancel := context.WithCancel(t.Context())
			left := startWait(ctx, leaver)
			awaitSleepers(t, leaver, 1)
			stayed := startWait(t.Context(), stayer)
			awaitSleepers(t, stayer, 2)
			leave := cancel
			if round%2 == 0 {
				leave = func() { leaver.Close() }
			}
			if round%3 == 0 {
				go leave()
			} else {
				leave()
			}
			stayer.Post()
			if result(t, left) == nil {
				stayer.Post()
			}
			wantErr(t, result(t, stayed), nil)
			wantState(t, stayer, 0, 0)
			cancel()
		}
	})
}

func TestSemaphore_StormOfCancelsConservesPermits(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		const capacity = 2
		all := attachments(t, 3, capacity)
		prepare(all...)
		var inside, visits atomic.Int64
		var wg sync.WaitGroup
		for i := range 12 {
			s := all[i%len(all)]
			wg.Go(func() {
				for round := range 100 {
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i*round)*time.Microsecond)
					if s.Wait(ctx) == nil {
						if inside.Add(1) > capacity {
							t.Error("more permits are held than the capacity")
						}
						if round%8 == 0 {
							time.Sleep(10 * time.Microsecond)
						}
						visits.Add(1)
						inside.Add(-1)
						s.Post()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		wantState(t, all[0], capacity, 0)
		if visits.Load() == 0 {
			t.Error("no goroutine ever acquired a permit")
		}
	})
}

// TestSemaphore_SignalsLoseNothing interrupts the sleep with signals. It is not parallel,
// because the signals interrupt other tests too.
func TestSemaphore_SignalsLoseNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := create(t, 0)
		prepare(s)
		for range 20 {
			served := startWait(t.Context(), s)
			awaitSleepers(t, s, 1)
			interruptAllThreads(t)
			s.Post()
			interruptAllThreads(t)
			wantErr(t, result(t, served), nil)
		}
		wantState(t, s, 0, 0)
	})
}

// interruptAllThreads sends every thread the signal that the Go runtime uses for
// preemption.
func interruptAllThreads(t *testing.T) {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		id, _ := strconv.Atoi(task.Name())
		syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(id), uintptr(syscall.SIGURG))
	}
}

func TestSemaphore_HundredWaitersBlockOneThread(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"waitv", "slices"} {
		t.Run(how, func(t *testing.T) {
			s := create(t, 0)
			child := proctest.Start(t, "crowd", s.Name(), how)
			child.Expect("waiting")
			awaitSleepers(t, s, 1)
			wantState(t, s, 0, 1)
			child.Send("count your threads")
			if threads, err := strconv.Atoi(child.Receive()); err != nil || threads > 20 {
				t.Errorf("%d threads (%v) for one blocked thread", threads, err)
			}
			for range crowdSize {
				s.Post()
			}
			child.Expect("all served")
			wantState(t, s, 0, 0)
		})
	}
}

const crowdSize = 100

// crowd waits with many goroutines, on many Semaphores of the same name.
func crowd(c *proctest.Child) {
	var wg sync.WaitGroup
	var some *posix.Semaphore
	for range crowdSize {
		s, err := posix.Open(c.Args[0])
		c.Must(err)
		if c.Args[1] == "slices" {
			s.DisableWaitv()
		}
		wg.Go(func() { c.Must(s.Wait(context.Background())) })
		some = s
	}
	for some.Queued() != crowdSize-1 {
		time.Sleep(time.Millisecond)
	}
	c.Send("waiting")
	c.Receive()
	status, err := os.ReadFile("/proc/self/status")
	c.Must(err)
	_, after, _ := strings.Cut(string(status), "Threads:\t")
	threads, _, _ := strings.Cut(after, "\n")
	c.Send("%s", threads)
	wg.Wait()
	c.Send("all served")
}
