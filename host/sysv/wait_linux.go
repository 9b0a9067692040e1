//go:build amd64 || arm64 || riscv64 || loong64

package sysv

import (
	"context"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// semWait executes the operations as soon as they are possible. It fails with
// errContextEnded if the context ends first.
//
// A semop that is interrupted by a signal has no effect and returns EINTR, even with
// SA_RESTART. So after EINTR semWait checks the context and retries, which is also
// right for unrelated signals.
//
// To cancel, the thread is interrupted. The alternative is a semtimedop that times out
// every few milliseconds to check the context. It wakes each waiting process all the
// time. It also requeues the process at the end of the kernel's queue every 5 ms, where
// all processes that do not poll overtake it. So it is used only in programs that ignore
// SIGURG.
func semWait(ctx context.Context, id int, ops []sembuf) error {
	var timeout *syscall.Timespec
	if ctx.Done() != nil {
		runtime.LockOSThread() // the signal must reach this thread
		defer runtime.UnlockOSThread()
		defer interruptWhenDone(ctx).stop()
		if signal.Ignored(interruption) {
			every := syscall.NsecToTimespec(int64(pollInterval))
			timeout = &every
		}
	}
	for ctx.Err() == nil {
		switch errno := semtimedop(id, ops, timeout); errno {
		case 0:
			return nil
		case syscall.EINTR, syscall.EAGAIN: // check the context again
		default:
			return errno
		}
	}
	return errContextEnded
}

// pollInterval is the interval at which a context is checked if SIGURG is ignored.
const pollInterval = 5 * time.Millisecond

// interruption is the signal with which the Go runtime preempts its own threads. The
// runtime expects to receive some that it did not send.
const interruption = syscall.SIGURG

// An interrupter interrupts the system call of a thread when a context ends.
type interrupter struct {
	unregister func() bool
	out        chan struct{} // closed by the thread: no more signals are needed
	ended      chan struct{} // closed when no more signals will be sent
}

// interruptWhenDone interrupts the calling thread when ctx ends, and then repeatedly
// until stop. One signal is not enough: it may arrive after the thread has checked the
// context and before the thread enters the kernel, where it would then sleep.
func interruptWhenDone(ctx context.Context) *interrupter {
	process, thread := syscall.Getpid(), syscall.Gettid()
	i := &interrupter{out: make(chan struct{}), ended: make(chan struct{})}
	i.unregister = context.AfterFunc(ctx, func() {
		defer close(i.ended)
		again := time.NewTicker(interruptEvery)
		defer again.Stop()
		for {
			syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(process), uintptr(thread), uintptr(interruption))
			select {
			case <-i.out:
				return
			case <-again.C:
			}
		}
	})
	return i
}

const interruptEvery = time.Millisecond

// stop ends the interrupter. It returns when no more signals will be sent, so that none
// interrupts what the thread does next.
func (i *interrupter) stop() {
	if i.unregister() {
		return
	}
	close(i.out)
	<-i.ended
}
