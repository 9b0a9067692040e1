//go:build linux && !sema_portable

package host_test

import (
	"context"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

// TestAcquire_FirstWaiterIsWoken checks what ends the wait of a caller that waits in the
// queue of the host itself: every end must wake it, since it does not poll.
func TestAcquire_FirstWaiterIsWoken(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 1)
	other := startUserWithoutPolling(t, dir, name, 1)
	other.Send("acquire 1")
	other.Expect("acquired 1")
	start := func(ctx context.Context, s *host.Semaphore) <-chan error {
		ended := make(chan error, 1)
		go func() {
			p, err := s.Acquire(ctx, 1)
			p.Release()
			ended <- err
		}()
		awaitStats(t, sem, 1, 1)
		return ended
	}

	ctx, cancel := context.WithCancel(context.Background())
	ended := start(ctx, sem)
	cancel()
	wantErr(t, <-ended, context.Canceled)

	impatient := openIn(t, dir, name, 1, sema.MaxWait(50*time.Millisecond))
	wantErr(t, <-start(context.Background(), impatient), sema.ErrTimeout)

	closing := openIn(t, dir, name, 1)
	ended = start(context.Background(), closing)
	closing.Close()
	wantErr(t, <-ended, sema.ErrClosed)

	ended = start(context.Background(), sem)
	other.Send("resize 0")
	other.Expect("resized")
	other.Send("resize 1")
	other.Expect("resized")
	other.Send("release")
	other.Expect("released")
	wantErr(t, <-ended, nil)
}

// TestAcquire_SecondWaiterOutlivesTheFirst checks that the waiters behind a caller that
// waits in the queue of the host itself are served after it has left.
func TestAcquire_SecondWaiterOutlivesTheFirst(t *testing.T) {
	t.Parallel()
	sem, dir, name := openWithoutPolling(t, 1)
	other := startUserWithoutPolling(t, dir, name, 1)
	for range 20 {
		other.Send("acquire 1")
		other.Expect("acquired 1")
		ctx, cancel := context.WithCancel(context.Background())
		first := make(chan error, 1)
		go func() { _, err := sem.Acquire(ctx, 1); first <- err }()
		awaitStats(t, sem, 1, 1)
		second := acquiring(t, sem, 1)
		awaitStats(t, sem, 1, 2)
		third := acquiring(t, sem, 1)
		awaitStats(t, sem, 1, 3)
		cancel()
		wantErr(t, <-first, context.Canceled)
		other.Send("release")
		other.Expect("released")
		(<-second).Release()
		(<-third).Release()
		awaitStats(t, sem, 0, 0)
	}
}
