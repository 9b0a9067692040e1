//go:build linux

package host_test

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

func TestSemaphore_CloseRejectsWaitersAndKeepsHeldPermits(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	again := openIn(t, dir, name, 1)
	p := mustAcquire(t, sem, 1)
	rejected, admitted := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := sem.Acquire(context.Background(), 1)
		rejected <- err
	}()
	awaitStats(t, sem, 1, 1)
	go func() {
		_, err := again.Acquire(context.Background(), 1)
		admitted <- err
	}()
	awaitStats(t, sem, 1, 2)
	if err := sem.Close(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-rejected, sema.ErrClosed)
	_, err := sem.TryAcquire(context.Background(), 1)
	wantErr(t, err, sema.ErrClosed)
	if err := sem.Close(); err != nil {
		t.Error("second Close:", err)
	}
	wantErr(t, sem.Resize(context.Background(), 2), sema.ErrClosed)
	awaitStats(t, again, 1, 1)
	p.Release()
	if err := <-admitted; err != nil {
		t.Errorf("waiter of the other handle: %v", err)
	}
}

// TestSemaphore_ClosedIsNotInUse checks that a closed semaphore can be removed.
func TestSemaphore_ClosedIsNotInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, use := range map[string]func(*host.Semaphore){
		"a-waiter-that-left": func(sem *host.Semaphore) {
			p := mustAcquire(t, sem, 1)
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			sem.Acquire(ctx, 1)
			p.Release()
		},
		"a-permit-that-was-inherited": func(sem *host.Semaphore) {
			p := mustAcquire(t, sem, 1)
			defer p.Release()
			cmd := exec.Command("sleep", "60")
			if err := host.Inherit(p, cmd); errors.Is(err, errors.ErrUnsupported) {
				return
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		},
	} {
		sem, err := host.Open(name, 1, host.Dir(dir))
		if err != nil {
			t.Fatal(err)
		}
		use(sem)
		sem.Close()
		if err := host.Remove(name, host.Dir(dir)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSemaphore_ForkDoesNotKeepFileOpen starts children meanwhile: a child between fork
// and exec has a copy of every descriptor.
func TestSemaphore_ForkDoesNotKeepFileOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				exec.Command("true").Run()
			}
		}
	})
	for i := range 500 {
		sem, err := host.Open("a", 1, host.Dir(dir))
		if err != nil {
			t.Errorf("open %d: %v", i, err)
			break
		}
		sem.Close()
		if err := host.Remove("a", host.Dir(dir)); err != nil {
			t.Errorf("remove %d: %v", i, err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

func TestSemaphore_CloseWithPanickingObserverLeaksNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sem, err := host.Open("a", 1, host.Dir(dir), sema.Observe(sema.ObserverFunc(func(e sema.Event) { panic("observer") })))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { recover() }()
		sem.Close()
	}()
	if err := host.Remove("a", host.Dir(dir)); err != nil {
		t.Error(err)
	}
}

func TestSemaphore_PermitsOutliveTheLastClose(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 1)
	p := mustAcquire(t, sem, 1)
	sem.Close()
	other := startUser(t, dir, name, 1)
	other.Send("try 1")
	other.Expect("full")
	p.Release()
	other.Send("try 1")
	other.Expect("acquired 1")
	_, err := sem.Inspect(context.Background())
	wantErr(t, err, sema.ErrClosed)
}
