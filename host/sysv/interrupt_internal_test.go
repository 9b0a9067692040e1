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

// TestInterrupter_RepeatsAnEarlyInterruption starts in the middle of the race that
// cancelling has to win: the thread has checked the context and is about to enter the
// kernel when the first signal arrives.
func TestInterrupter_RepeatsAnEarlyInterruption(t *testing.T) {
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
		t.Errorf("wait ended after %v with %v, want EINTR", time.Since(begin), errno)
	}
}

// TestInterrupter_SendsNothingAfterStop checks that no signal interrupts what the thread
// does next.
func TestInterrupter_SendsNothingAfterStop(t *testing.T) {
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
			t.Fatal("stop returned although more signals could be sent")
		}
	}
}
