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
				s.SleepInSlices()
			}
		})
	})
}

func TestPostWakesWhoWaits(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := fresh(t, 0)
		prepare(s)
		served := waiting(t.Context(), s)
		asleep(t, s, 1)
		wantState(t, s, 0, 1)
		wantErr(t, s.Post(), nil)
		wantErr(t, result(t, served), nil)
		wantState(t, s, 0, 0)
	})
}

func TestTheEndOfAContextIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := fresh(t, 0)
		prepare(s)
		why := errors.New("why")
		for range 21 {
			ctx, cancel := context.WithCancelCause(t.Context())
			blocked := waiting(ctx, s)
			asleep(t, s, 1)
			cancel(why)
			if err := result(t, blocked); err != why {
				t.Fatalf("error %v, want the cause as it is", err)
			}
		}
		wantState(t, s, 0, 0)
	})
}

func TestCloseWakesWhoWaits(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := fresh(t, 0)
		again := reopened(t, s)
		prepare(s)
		var all []<-chan error
		for range 5 {
			all = append(all, waiting(context.Background(), s))
		}
		queued(t, s, 4)
		asleep(t, s, 1)
		s.Close()
		for _, c := range all {
			wantErr(t, result(t, c), sema.ErrClosed)
		}
		wantState(t, again, 0, 0)
	})
}

func TestGoroutinesAreServedInTurn(t *testing.T) {
	t.Parallel()
	s := fresh(t, 0)
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
			asleep(t, s, 1)
		}
		queued(t, s, i)
	}
	cancel()
	wantErr(t, result(t, left), context.Canceled)
	for want := range goroutines {
		if want == leaver {
			continue
		}
		s.Post()
		if got := <-served; got != want {
			t.Fatalf("%d was served before %d", got, want)
		}
	}
}

// A silentContext ends without telling.
type silentContext struct {
	context.Context
	ended atomic.Bool
	never chan struct{}
}

func newSilentContext(t *testing.T) *silentContext {
	return &silentContext{Context: t.Context(), never: make(chan struct{})}
}

func (c *silentContext) Done() <-chan struct{} { return c.never }

func (c *silentContext) AfterFunc(func()) (stop func() bool) { return func() bool { return true } }

func (c *silentContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// A slyContext ends, and has told, the moment after it was looked at.
type slyContext struct {
	*silentContext
	tell func()
	told func() bool
}

func (c *slyContext) AfterFunc(tell func()) (stop func() bool) {
	c.tell = tell
	return func() bool { return true }
}

func (c *slyContext) Err() error {
	if c.tell == nil || c.ended.Load() {
		return c.silentContext.Err()
	}
	c.ended.Store(true)
	c.tell()
	for !c.told() {
		time.Sleep(10 * time.Microsecond)
	}
	return nil
}

func TestAContextThatEndsBeforeTheSleepIsNoticed(t *testing.T) {
	t.Parallel()
	s := fresh(t, 0)
	ctx := &slyContext{silentContext: newSilentContext(t), told: s.Stirred}
	wantErr(t, result(t, waiting(ctx, s)), context.Canceled)
	wantState(t, s, 0, 0)
}

// The wake-up of a post goes to the first who slept, whose context has just
// ended. It must reach the second.
func TestWhoLeavesPassesTheWakeUpOn(t *testing.T) {
	t.Parallel()
	for range 100 {
		both := strangers(t, 2, 0)
		leaver, stayer := both[0], both[1]
		ctx := newSilentContext(t)
		left := waiting(ctx, leaver)
		asleep(t, leaver, 1)
		stayed := waiting(t.Context(), stayer)
		asleep(t, stayer, 2)
		ctx.ended.Store(true)
		wantErr(t, stayer.Post(), nil)
		select {
		case err := <-left:
			wantErr(t, err, context.Canceled)
			wantErr(t, result(t, stayed), nil)
			wantState(t, stayer, 0, 0)
			return
		case <-stayed:
			leaver.Close() // a stray signal had put the leaver behind: again
			result(t, left)
		}
	}
	t.Fatal("the leaver was never the first to be woken")
}

// Likewise with contexts that tell, and with Close.
func TestPostsRacingWithLeaversReachWhoStays(t *testing.T) {
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
			left := waiting(ctx, leaver)
			asleep(t, leaver, 1)
			stayed := waiting(t.Context(), stayer)
			asleep(t, stayer, 2)
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

func TestStormOfCancelsConservesPermits(t *testing.T) {
	t.Parallel()
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		const capacity = 2
		all := strangers(t, 3, capacity)
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
							t.Error("more inside than there are permits")
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
			t.Error("nobody ever got in")
		}
	})
}

// Signals interrupt the sleep. (Others' too, so no other test runs meanwhile.)
func TestSignalsLoseNothing(t *testing.T) {
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := fresh(t, 0)
		prepare(s)
		for range 20 {
			served := waiting(t.Context(), s)
			asleep(t, s, 1)
			interruptAllThreads(t)
			s.Post()
			interruptAllThreads(t)
			wantErr(t, result(t, served), nil)
		}
		wantState(t, s, 0, 0)
	})
}

// interruptAllThreads sends the signal that the Go runtime uses for that.
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

func TestAHundredWaitersBlockOneThread(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"waitv", "slices"} {
		t.Run(how, func(t *testing.T) {
			s := fresh(t, 0)
			child := proctest.Start(t, "crowd", s.Name(), how)
			child.Expect("waiting")
			asleep(t, s, 1)
			wantState(t, s, 0, 1)
			child.Say("count your threads")
			if threads, err := strconv.Atoi(child.Hear()); err != nil || threads > 20 {
				t.Errorf("%d threads (%v) for one that is blocked", threads, err)
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
			s.SleepInSlices()
		}
		wg.Go(func() { c.Must(s.Wait(context.Background())) })
		some = s
	}
	for some.Queued() != crowdSize-1 {
		time.Sleep(time.Millisecond)
	}
	c.Say("waiting")
	c.Hear()
	status, err := os.ReadFile("/proc/self/status")
	c.Must(err)
	_, after, _ := strings.Cut(string(status), "Threads:\t")
	threads, _, _ := strings.Cut(after, "\n")
	c.Say("%s", threads)
	wg.Wait()
	c.Say("all served")
}
