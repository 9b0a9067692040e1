//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestAnInterruptionThatCameTooEarlyIsRepeated begins in the middle of the
// race that cancelling has to win: the thread has looked at the context and is
// on its way into the kernel when the first signal arrives.
func TestAnInterruptionThatCameTooEarlyIsRepeated(t *testing.T) {
	id, err := semCreate(Private, 1, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer semRemove(id)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, interruption)
	defer signal.Stop(arrived)

	ctx, cancel := context.WithCancel(context.Background())
	i := interruptWhenDone(ctx)
	defer i.stop()
	cancel()
	<-arrived
	limit := syscall.NsecToTimespec(int64(5 * time.Second))
	begin := time.Now()
	if errno := semtimedop(id, []sembuf{{delta: -1}}, &limit); errno != syscall.EINTR {
		t.Errorf("waiting ended after %v with %v, want an interruption", time.Since(begin), errno)
	}
}

// TestNoInterruptionComesAfterStop: what the thread does next is not ours to
// disturb.
func TestNoInterruptionComesAfterStop(t *testing.T) {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, interruption)
	defer signal.Stop(arrived)
	for range 100 {
		ctx, cancel := context.WithCancel(context.Background())
		i := interruptWhenDone(ctx)
		cancel()
		<-arrived
		i.stop()
		select {
		case <-i.ended:
		default:
			t.Fatal("stop returned while more could come")
		}
	}
}
