//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

func TestSet_OpWaits(t *testing.T) {
	t.Parallel()
	set := newSet(t, 0)
	taken := start(func() error { return set.Op(background, sysv.Op{Delta: -2}) })
	awaitWaiting(t, set, 0, 1)
	must(t, set.Op(background, sysv.Op{Delta: +1}))
	expectValues(t, set, 1)
	must(t, set.TryOp(sysv.Op{Delta: +2}))
	must(t, await(t, taken))
	expectValues(t, set, 1)

	zero := start(func() error { return set.Op(background, sysv.Op{Delta: 0}) })
	awaitWaiting(t, set, 0, 1)
	if _, forZero, err := set.Waiting(0); err != nil || forZero != 1 {
		t.Errorf("%d wait for zero, %v", forZero, err)
	}
	must(t, set.TryOp(sysv.Op{Delta: -1}))
	must(t, await(t, zero))
}

func TestSet_OpIsAtomic(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1, 0, 1)
	both := []sysv.Op{{Num: 0, Delta: -1}, {Num: 2, Delta: -1}, {Num: 1, Delta: -1}}
	mustBe(t, set.TryOp(both...), sema.ErrFull, syscall.EAGAIN)
	expectValues(t, set, 1, 0, 1)
	taken := start(func() error { return set.Op(background, both...) })
	awaitWaiting(t, set, 1, 1)
	expectValues(t, set, 1, 0, 1)
	must(t, set.TryOp(sysv.Op{Num: 0, Delta: -1}))
	must(t, set.TryOp(sysv.Op{Num: 1, Delta: +1}))
	expectValues(t, set, 0, 1, 1)
	must(t, set.TryOp(sysv.Op{Num: 0, Delta: +1}))
	must(t, await(t, taken))
	expectValues(t, set, 0, 0, 0)
}

func TestSet_OpRejectsInvalidOperations(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1, sysv.MaxValue)
	ended, cancel := context.WithCancelCause(background)
	reason := errors.New("the cause")
	cancel(reason)
	mustBe(t, set.Op(ended, sysv.Op{Delta: -1}), reason)
	mustBe(t, set.Op(nil, sysv.Op{Delta: -1}), sema.ErrInvalid) //lint:ignore SA1012 it is rejected
	mustBe(t, set.Op(background), sema.ErrInvalid)
	mustBe(t, set.TryOp(), sema.ErrInvalid)
	mustBe(t, set.TryOp(sysv.Op{Num: 1, Delta: 1}), sema.ErrOverRelease, syscall.ERANGE)
	mustBe(t, set.Op(background, sysv.Op{Num: 1, Delta: 1}), sema.ErrOverRelease, syscall.ERANGE)
	mustBe(t, set.Op(background, sysv.Op{Delta: sysv.MaxValue + 1}), sema.ErrOverRelease, syscall.ERANGE)
	mustBe(t, set.Op(background, sysv.Op{Delta: -sysv.MaxValue - 1}), sema.ErrTooLarge, syscall.ERANGE)
	mustBe(t, set.Op(background, sysv.Op{Delta: 1 << 40}), sema.ErrOverRelease)
	mustBe(t, set.Op(background, make([]sysv.Op, 100_000)...), sema.ErrInvalid, syscall.E2BIG)
	expectValues(t, set, 1, sysv.MaxValue)
}

// TestSet_DiningPhilosophers solves the dining philosophers problem, with processes as
// philosophers: each acquires both forks atomically.
func TestSet_DiningPhilosophers(t *testing.T) {
	t.Parallel()
	const diners, meals = 5, 200
	set := newSet(t, 1, 1, 1, 1, 1)
	table := newBoard(t)
	var processes []*proctest.Process
	for seat := range diners {
		processes = append(processes, proctest.Start(t, "diner", idOf(set), table.path, fmt.Sprint(seat), fmt.Sprint(meals)))
	}
	for _, p := range processes {
		p.Expect("seated")
	}
	for _, p := range processes {
		p.Send("eat")
	}
	for _, p := range processes {
		p.Expect("full")
	}
	expectValues(t, set, 1, 1, 1, 1, 1)
}

func dine(c *proctest.Child) {
	set, table := openArg(c, 0), openBoard(c, c.Args[1])
	seat, meals := number(c, 2), number(c, 3)
	left, right := seat, (seat+1)%set.Len()
	owner := func(fork int) uint64 { return 1 << (8 * fork) }
	c.Send("seated")
	c.Receive()
	for range meals {
		c.Must(set.Op(background, sysv.Op{Num: left, Delta: -1, Undo: true}, sysv.Op{Num: right, Delta: -1, Undo: true}))
		on := table.add(owner(left) + owner(right))
		for fork := range set.Len() {
			if on>>(8*fork)&0xff > 1 {
				c.Must(fmt.Errorf("fork %d is used twice", fork))
			}
		}
		runtime.Gosched()
		table.add(-owner(left) - owner(right))
		c.Must(set.Op(background, sysv.Op{Num: left, Delta: +1, Undo: true}, sysv.Op{Num: right, Delta: +1, Undo: true}))
	}
	c.Send("full")
}

func TestSet_CancelEndsOp(t *testing.T) {
	t.Parallel()
	set := newSet(t, 0)
	for range 40 {
		ctx, cancel := context.WithCancelCause(background)
		ended := start(func() error { return set.Op(ctx, sysv.Op{Delta: -1}) })
		awaitWaiting(t, set, 0, 1)
		reason := errors.New("the cause")
		cancel(reason)
		mustBe(t, await(t, ended), reason)
	}
	awaitWaiting(t, set, 0, 0)
	expectValues(t, set, 0)
}

// TestSet_CancelWithIgnoredSignal runs a program that ignores the signal that cancels.
func TestSet_CancelWithIgnoredSignal(t *testing.T) {
	t.Parallel()
	set := newSet(t, 0)
	p := proctest.Start(t, "ignoring", idOf(set))
	p.Expect("ignoring")
	awaitWaiting(t, set, 0, 1)
	p.Send("cancel")
	p.Expect("context canceled")
	expectValues(t, set, 0)
}

func cancelWhileIgnoringSignals(c *proctest.Child) {
	set := openArg(c, 0)
	signal.Ignore(syscall.SIGURG)
	ctx, cancel := context.WithCancel(background)
	ended := start(func() error { return set.Op(ctx, sysv.Op{Delta: -1}) })
	c.Send("ignoring")
	c.Receive()
	cancel()
	c.Send("%v", <-ended)
}

func TestSet_DeadlineEndsOp(t *testing.T) {
	t.Parallel()
	set := newSet(t, 0)
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	mustBe(t, await(t, start(func() error { return set.Op(ctx, sysv.Op{Delta: -1}) })), context.DeadlineExceeded)
	expectValues(t, set, 0)
}

// TestSet_CancelStormsConserveTheValue cancels at random moments, in particular while the
// kernel grants.
func TestSet_CancelStormsConserveTheValue(t *testing.T) {
	t.Parallel()
	const tokens, workers, rounds = 3, 6, 150
	set := newSet(t, tokens)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for range rounds {
				ctx, cancel := context.WithTimeout(background, time.Duration(rand.IntN(300))*time.Microsecond)
				err := set.Op(ctx, sysv.Op{Delta: -2, Undo: true})
				if err == nil {
					time.Sleep(time.Duration(rand.IntN(150)) * time.Microsecond)
					err = set.Op(background, sysv.Op{Delta: +2, Undo: true})
				} else if errors.Is(err, context.DeadlineExceeded) {
					err = nil
				}
				cancel()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	working.Wait()
	expectValues(t, set, tokens)
}

// TestSet_SignalsLoseNothing sends signals to all threads of a process that waits.
func TestSet_SignalsLoseNothing(t *testing.T) {
	t.Parallel()
	const grants = 50
	set := newSet(t, 0, 0)
	p := proctest.Start(t, "stormy", idOf(set), fmt.Sprint(grants))
	for range grants {
		awaitWaiting(t, set, 0, 1)
		for range 10 {
			for _, tid := range threads(t, p.Pid) {
				signalThread(p.Pid, tid, syscall.SIGURG)
				signalThread(p.Pid, tid, syscall.SIGWINCH)
			}
		}
		expectValues(t, set, 0, 0)
		must(t, set.TryOp(sysv.Op{Num: 0, Delta: +1}))
		awaitValue(t, set, 1, 1)
		expectValues(t, set, 0, 1)
		must(t, set.TryOp(sysv.Op{Num: 1, Delta: -1}))
	}
	p.Expect("acquired all")
	expectValues(t, set, 0, 0)
}

// acquireInStorm decrements semaphore 0 and increments semaphore 1, with and without a
// context that can be cancelled.
func acquireInStorm(c *proctest.Child) {
	set, grants := openArg(c, 0), number(c, 1)
	endless, cancel := context.WithCancel(background)
	defer cancel()
	for i := range grants {
		ctx := background
		if i%2 == 0 {
			ctx = endless
		}
		c.Must(set.Op(ctx, sysv.Op{Num: 0, Delta: -1}))
		c.Must(set.TryOp(sysv.Op{Num: 1, Delta: +1}))
	}
	c.Send("acquired all")
}

func TestSet_RemoveEndsOp(t *testing.T) {
	t.Parallel()
	set := newSet(t, 0)
	p := proctest.Start(t, "holder", idOf(set), "1")
	endless, cancel := context.WithCancel(background)
	defer cancel()
	here := start(func() error { return set.Op(background, sysv.Op{Delta: -1}) })
	too := start(func() error { return set.Op(endless, sysv.Op{Delta: -1}) })
	awaitWaiting(t, set, 0, 3)
	must(t, set.Remove())
	mustBe(t, await(t, here), sema.ErrClosed, syscall.EIDRM)
	mustBe(t, await(t, too), sema.ErrClosed, syscall.EIDRM)
	p.Expect("closed")
}

// hold acquires, reports it, and releases on command.
func hold(c *proctest.Child) {
	set, n := openArg(c, 0), number(c, 1)
	err := set.Op(background, sysv.Op{Delta: -n, Undo: true})
	if errors.Is(err, sema.ErrClosed) {
		c.Send("closed")
		return
	}
	c.Must(err)
	c.Send("holding")
	c.Receive()
	c.Must(set.Op(background, sysv.Op{Delta: +n, Undo: true}))
	c.Send("released")
	c.Receive()
}

func TestSet_UndoReleasesForEndedProcesses(t *testing.T) {
	t.Parallel()
	set := newSet(t, 5)
	p := proctest.Start(t, "holder", idOf(set), "3")
	p.Expect("holding")
	expectValues(t, set, 2)
	p.End()
	expectValues(t, set, 5)

	releasing := proctest.Start(t, "holder", idOf(set), "4")
	releasing.Expect("holding")
	releasing.Send("release")
	releasing.Expect("released")
	expectValues(t, set, 5)
	releasing.End()
	expectValues(t, set, 5)
}

// TestSet_StoppedWaiterDelaysNoOthers stops a waiter: this interrupts its semop, and the
// waiter starts another one when it is continued.
func TestSet_StoppedWaiterDelaysNoOthers(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		set := newSet(t, 0)
		p := proctest.Start(t, "holder", idOf(set), "1")
		awaitWaiting(t, set, 0, 1)
		p.Stop()
		awaitWaiting(t, set, 0, 0)
		must(t, set.TryOp(sysv.Op{Delta: +1}))
		must(t, set.TryOp(sysv.Op{Delta: -1}))
		if killed {
			p.End()
			expectValues(t, set, 0)
			continue
		}
		p.Continue()
		awaitWaiting(t, set, 0, 1)
		must(t, set.TryOp(sysv.Op{Delta: +1}))
		p.Expect("holding")
		expectValues(t, set, 0)
	}
}

// TestSet_StoppedHolderKeepsItsPermits checks that a stopped process holds until it is
// killed.
func TestSet_StoppedHolderKeepsItsPermits(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1)
	p := proctest.Start(t, "holder", idOf(set), "1")
	p.Expect("holding")
	p.Stop()
	mustBe(t, set.TryOp(sysv.Op{Delta: -1}), sema.ErrFull)
	p.End()
	expectValues(t, set, 1)
}

// TestSet_ChildrenDoNotInheritUndo checks that a process that outlives its parent does
// not keep what the parent held.
func TestSet_ChildrenDoNotInheritUndo(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1)
	p := proctest.Start(t, "orphaner", idOf(set))
	var orphan int
	fmt.Sscan(p.Receive(), &orphan)
	expectValues(t, set, 0)
	p.End()
	defer syscall.Kill(orphan, syscall.SIGKILL)
	must(t, syscall.Kill(orphan, 0)) // it is alive
	expectValues(t, set, 1)
}

func leaveOrphan(c *proctest.Child) {
	set := openArg(c, 0)
	c.Must(set.TryOp(sysv.Op{Delta: -1, Undo: true}))
	orphan := exec.Command("sleep", "60")
	c.Must(orphan.Start())
	c.Send("%d", orphan.Process.Pid)
	c.Receive()
}

// TestSet_UndoBelongsToTheProcess checks that permits acquired by a thread stay held when
// the thread ends, and are released when the process ends.
func TestSet_UndoBelongsToTheProcess(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1)
	p := proctest.Start(t, "outliver", idOf(set))
	awaitWaiting(t, set, 0, 1)
	must(t, set.TryOp(sysv.Op{Delta: +2}))
	p.Expect("thread ended")
	expectValues(t, set, 1)
	p.End()
	expectValues(t, set, 3)
}

func outliveThread(c *proctest.Child) {
	set := openArg(c, 0)
	waiting, cancel := context.WithCancel(background)
	defer cancel()
	tids := make(chan int)
	var take func()
	take = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			go take() // the runtime keeps the first thread: use another one
			select {}
		}
		c.Must(set.Op(waiting, sysv.Op{Delta: -2, Undo: true}))
		tids <- syscall.Gettid()
	}
	go take()
	path := fmt.Sprintf("/proc/self/task/%d", <-tids)
	for {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	c.Send("thread ended")
	c.Receive()
}
