//go:build amd64 || arm64 || riscv64 || loong64

package sysv

import (
	"context"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// semWait does the operations as soon as they can be done. It fails with
// errContextEnded if that comes first.
//
// A semop that is interrupted by a signal did nothing and returns EINTR,
// whatever SA_RESTART says. So EINTR means to look at the context and go on,
// which is right for signals that are none of our business, too.
//
// To cancel, we interrupt the thread. The other way, a semtimedop that times
// out every few milliseconds to look at the context, wakes each waiting
// process all the time, and each time puts it back at the end of the kernel's
// queue: where many wait, whoever gives up its place every 5 ms is overtaken
// by everybody who does not. That remains for programs that ignore SIGURG.
func semWait(ctx context.Context, id int, ops []sembuf) error {
	var timeout *syscall.Timespec
	if ctx.Done() != nil {
		runtime.LockOSThread() // it is this thread that has to be interrupted
		defer runtime.UnlockOSThread()
		defer interruptWhenDone(ctx).stop()
		if signal.Ignored(interruption) {
			every := syscall.NsecToTimespec(int64(lookEvery))
			timeout = &every
		}
	}
	for ctx.Err() == nil {
		switch errno := semtimedop(id, ops, timeout); errno {
		case 0:
			return nil
		case syscall.EINTR, syscall.EAGAIN: // look at the context again
		default:
			return errno
		}
	}
	return errContextEnded
}

// lookEvery is how often a context is looked at that cannot interrupt.
const lookEvery = 5 * time.Millisecond

// interruption is the signal the Go runtime interrupts its own threads with.
// It expects to get some that it did not send.
const interruption = syscall.SIGURG

// An interrupter gets a thread out of a system call when a context ends.
type interrupter struct {
	unregister func() bool
	out        chan struct{} // closed by the thread: it needs no more
	ended      chan struct{} // closed when no more will come
}

// interruptWhenDone begins to interrupt the calling thread as soon as ctx ends,
// and does so again and again until stop: a signal that arrives after the
// thread last looked at the context but before it is in the kernel does not
// keep it from going to sleep there.
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

// stop returns when no signal of this interrupter will be sent any more, so
// that none hits what the thread does next.
func (i *interrupter) stop() {
	if i.unregister() {
		return
	}
	close(i.out)
	<-i.ended
}
