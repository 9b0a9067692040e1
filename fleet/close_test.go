package fleet_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestClient_CloseDuringReleases(t *testing.T) {
	t.Parallel()
	for range 50 {
		c := fleet.New(memstore.New())
		s := semaphore(t, c, of(100))
		var permits []sema.Permit
		for range 50 {
			permits = append(permits, mustAcquire(t, s, 1))
		}
		var wg sync.WaitGroup
		for _, p := range permits {
			wg.Go(p.Release)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
		wg.Wait()
		permits[0].Release()
	}
}

func TestRelease_AfterCloseReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
		wantErr(t, fleet.Release(context.Background(), p), sema.ErrLost)
	})
}

func TestClient_CloseReportsUnconfirmedReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		conn.cut.Store(true)
		p.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Close(ctx)
		wantErr(t, err, sema.ErrUnavailable)
		wantErr(t, err, context.DeadlineExceeded)
		select {
		case <-q.Lost():
		default:
			t.Error("a permit that is not renewed any more is not lost")
		}
		wantErr(t, q.Err(), sema.ErrLost)
		wantErr(t, p.Err(), nil)
	})
}

func TestClient_CloseModes(t *testing.T) {
	t.Parallel()
	for _, pooled := range []bool{false, true} {
		for mode, left := range map[fleet.CloseMode]int64{fleet.CloseRelease: 0, fleet.CloseAbandon: 2} {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				c, _ := newClient(t, store)
				o := of(5)
				if pooled {
					o = o.with(fleet.ModePooled)
				}
				s := semaphore(t, c, o)
				p, q := mustAcquire(t, s, 2), mustAcquire(t, s, 1)
				q.Release()
				start := time.Now()
				wantErr(t, c.Close(t.Context(), mode), nil)
				if took := time.Since(start); took > time.Second {
					t.Errorf("it took %v", took)
				}
				wantErr(t, p.Err(), sema.ErrLost)
				if used, _ := inUse(t, store); used != left {
					t.Errorf("%d in use, want %d", used, left)
				}
			})
		}
	}
}

func TestClient_CloseIgnoresReleasesOfADeletedSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		conn.delay = time.Millisecond
		p := mustAcquire(t, semaphore(t, c, of(1)), 1)
		wantErr(t, c.Delete(t.Context(), "db"), nil)
		p.Release()
		wantErr(t, c.Close(t.Context()), nil)
	})
}

func TestClient_CloseWaitsForPermitsAndReportsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c := fleet.New(store)
		c.UseBubbleClock()
		s := semaphore(t, c, of(2))
		p, q := mustAcquire(t, s, 1), mustAcquire(t, s, 1)
		rejected := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background(), 1)
			rejected <- err
		}()
		synctest.Wait()
		go func() {
			time.Sleep(time.Second)
			p.Release()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err := c.Close(ctx)
		wantErr(t, err, context.DeadlineExceeded)
		wantErr(t, <-rejected, sema.ErrClosed)
		_, err = s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrClosed)
		if used, _ := inUse(t, store); used != 1 {
			t.Errorf("%d in use, want the one that was not released", used)
		}
		q.Release()
		wantErr(t, c.Close(context.Background()), sema.ErrClosed)
	})
}

func TestClient_CloseIgnoresEarlierUnconfirmedReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(2))
		p := mustAcquire(t, s, 1)
		conn.cut.Store(true)
		p.Release()
		time.Sleep(time.Minute)
		conn.cut.Store(false)
		q := mustAcquire(t, s, 1)
		if n := s.Stats().Unconfirmed; n != 1 {
			t.Fatalf("%d releases are unconfirmed", n)
		}
		q.Release()
		wantErr(t, c.Close(t.Context()), nil)
	})
}

func TestClient_CloseCountsUnconfirmedReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(3))
		p := mustAcquire(t, s, 1)
		mustAcquire(t, s, 2)
		conn.cut.Store(true)
		p.Release()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Close(ctx, fleet.CloseRelease)
		wantErr(t, err, sema.ErrUnavailable)
		if !strings.Contains(err.Error(), "not confirmed 3 releases") {
			t.Error(err)
		}
	})
}

func TestClient_CloseAbandonEndsAnUnusedSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, _ := newClient(t, store)
		s := semaphore(t, c, of(1))
		wantErr(t, fleet.Release(t.Context(), mustAcquire(t, s, 1)), nil)
		wantErr(t, c.Close(t.Context(), fleet.CloseAbandon), nil)
		snapshot, err := store.Inspect(t.Context(), "db")
		wantErr(t, err, nil)
		if len(snapshot.Sessions) != 0 {
			t.Errorf("sessions %+v are left", snapshot.Sessions)
		}
	})
}

func TestClient_CloseReportsFailedReleases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		mustAcquire(t, semaphore(t, c, of(5)), 2)
		conn.cut.Store(true)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := c.Close(ctx, fleet.CloseRelease)
		if used, _ := inUse(t, store); err == nil && used > 0 {
			t.Errorf("Close returns no error, and %d permits are in use at the store", used)
		}
	})
}

func TestClient_CloseReportsUnconfirmedReleasesOfALostSession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, conn := newClient(t, store)
		s := semaphore(t, c, of(5))
		p := mustAcquire(t, s, 2)
		conn.cut.Store(true)
		p.Release()
		err := c.Close(context.Background())
		if used, _ := inUse(t, store); err == nil && used > 0 {
			t.Errorf("Close returns no error; %d permits are in use at the store, %d releases are unconfirmed", used, s.Stats().Unconfirmed)
		}
	})
}

func TestSemaphore_Close(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			c, _ := newClient(t, store)
			var d eventLog
			s := semaphore(t, c, of(2, mode, sema.Observe(&d)))
			p := mustAcquire(t, s, 2)
			waiting := make(chan error, 1)
			go func() {
				_, err := s.Acquire(t.Context(), 1)
				waiting <- err
			}()
			synctest.Wait()
			time.AfterFunc(time.Minute, p.Release)
			start := time.Now()
			wantErr(t, s.Close(t.Context()), nil)
			if took := time.Since(start); took < time.Minute {
				t.Errorf("mode %d: Close returned after %v, before the release", mode, took)
			}
			wantErr(t, <-waiting, sema.ErrClosed)
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrClosed)
			wantErr(t, s.Close(t.Context()), sema.ErrClosed)
			if used, sessions := inUse(t, store); used != 0 || sessions != 0 {
				t.Errorf("mode %d: %d in use, %d sessions", mode, used, sessions)
			}
			synctest.Wait()
			if n := d.count(sema.EventClosed); n != 1 {
				t.Errorf("mode %d: reported %d times", mode, n)
			}
			again := semaphore(t, c, of(3, mode)) // a new semaphore
			mustAcquire(t, again, 2).Release()
			if !s.Stats().Closed || again.Stats().Closed {
				t.Error("Stats().Closed is wrong")
			}
		})
	}
}

func TestClient_CloseIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, sema.Observe(&d), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventClosed {
				c.Close(t.Context()) // observers may close the client
				panic("observer")
			}
		}))))
		mustAcquire(t, s, 1).Release()
		wantErr(t, c.Close(t.Context()), nil)
		synctest.Wait()
		if n := d.count(sema.EventClosed); n != 1 {
			t.Errorf("reported %d times", n)
		}
	})
}

// TestSemaphore_CloseModes checks that a permit which is still held when Close returns is lost,
// and is free at the store after its TTL.
func TestSemaphore_CloseModes(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		modes []fleet.CloseMode
		want  error
		used  int64 // right after Close
	}{
		"wait":    {nil, context.DeadlineExceeded, 1},
		"release": {[]fleet.CloseMode{fleet.CloseRelease}, nil, 0},
		"abandon": {[]fleet.CloseMode{fleet.CloseAbandon}, nil, 1},
		"invalid": {[]fleet.CloseMode{fleet.CloseAbandon + 1}, sema.ErrInvalid, 1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				client, _ := newClient(t, store)
				s := semaphore(t, client, of(2, fleet.TTL(15*time.Second)))
				p := mustAcquire(t, s, 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wantErr(t, s.Close(ctx, c.modes...), c.want)
				if used, _ := inUse(t, store); used != c.used {
					t.Errorf("%d in use, want %d", used, c.used)
				}
				if c.want == sema.ErrInvalid {
					wantErr(t, p.Err(), nil)
					return
				}
				wantErr(t, p.Err(), sema.ErrLost)
				time.Sleep(time.Minute)
				if used, _ := inUse(t, store); used != 0 {
					t.Errorf("%d in use after the TTL", used)
				}
			})
		})
	}
}
