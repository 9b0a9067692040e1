package fleet_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestStats_CountLossesByReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, l := newClient(t, store)
		s := semaphore(t, c, of(4))
		revoked, _ := fleet.LeaseOf(mustAcquire(t, s, 1))
		wantErr(t, c.Revoke(context.Background(), "db", fleet.Revocation{Lease: revoked.Fence.Seq, Why: "maintenance"}), nil)
		time.Sleep(time.Minute)
		if got := s.Stats().Lost; got != (fleet.Losses{Revoked: 1}) {
			t.Fatalf("lost %+v, want one revoked", got)
		}
		mustAcquire(t, s, 1)
		mustAcquire(t, s, 1)
		time.Sleep(time.Minute)
		before := s.Stats()
		l.cut.Store(true)
		time.Sleep(5 * time.Minute)
		after := s.Stats()
		if after.Lost != (fleet.Losses{Revoked: 1, Expired: 2}) {
			t.Errorf("lost %+v, want one revoked and two expired", after.Lost)
		}
		if before.Heartbeats == 0 || after.HeartbeatsFailed <= before.HeartbeatsFailed || after.ExchangeTime <= before.ExchangeTime {
			t.Errorf("before the store was away: %+v, after: %+v", before.Exchanges, after.Exchanges)
		}
		l.cut.Store(false)
	})
}

func TestStats_Counts(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			s := semaphore(t, c, of(2, mode, sema.MaxWait(10*time.Second)))
			p := mustAcquire(t, s, 2)
			_, err := s.TryAcquire(t.Context(), 1) // rejected
			wantErr(t, err, sema.ErrFull)
			_, err = s.Acquire(t.Context(), 3) // rejected
			wantErr(t, err, sema.ErrTooLarge)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			wg.Go(func() { s.Acquire(ctx, 1) })         // cancelled after 5 s
			wg.Go(func() { s.Acquire(t.Context(), 1) }) // timed out after 10 s
			time.Sleep(time.Second)
			if got := s.Stats(); got.Waiters != 2 || got.WaitTime != 2*time.Second {
				t.Errorf("mode %d: %d waiters, %v", mode, got.Waiters, got.WaitTime)
			}
			wg.Wait()
			time.AfterFunc(3*time.Second, p.Release)
			mustAcquire(t, s, 1).Release() // after 3 s
			for range 3 {
				mustAcquire(t, s, 1).Release()
			}
			_, err = s.Acquire(ctx, 1) // ctx has ended before
			wantErr(t, err, context.DeadlineExceeded)
			_, err = s.Acquire(t.Context(), -1)
			wantErr(t, err, sema.ErrInvalid)
			got := s.Stats().Counts
			want := sema.Counts{Acquired: 5, Waited: 3, TimedOut: 1, Cancelled: 1, Rejected: 2, WaitTime: 18 * time.Second}
			if mode == fleet.ModePooled { // the first acquire waits for a block, for zero time
				want.Waited++
			}
			if got != want {
				t.Errorf("mode %d: %+v, want %+v", mode, got, want)
			}
		})
	}
}

func TestStats_CountsExchanges(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			a, _ := newClient(t, store)
			b, conn := newClient(t, store)
			first := semaphore(t, a, of(1))
			s := semaphore(t, b, of(1, mode))
			p := mustAcquire(t, first, 1)
			got := make(chan sema.Permit)
			go func() { got <- mustAcquire(t, s, 1) }()
			synctest.Wait()
			p.Release()
			q := <-got
			synctest.Wait()
			if c := first.Stats().Exchanges; c.Sessions != 1 || c.Grants != 1 || c.Releases != 1 || c.Batches != 2 || c.Failures != 0 {
				t.Errorf("first client: %+v", c)
			}
			if c := s.Stats().Exchanges; c.Sessions != 1 || c.Grants != 1 || c.Releases != 0 || c.Notifications != 1 || c.Batches != 2 {
				t.Errorf("second client: %+v", c)
			}
			conn.cut.Store(true)
			if mode == fleet.ModeExact {
				q.Release()
			}
			time.Sleep(time.Minute)
			want := fleet.Exchanges{Grants: 1, Notifications: 1, Sessions: 1, SessionsLost: 1}
			if mode == fleet.ModeExact {
				want.Releases, want.Unconfirmed = 1, 1
			}
			c := s.Stats().Exchanges
			if c.Failures == 0 || c.Batches < c.Failures || c.Batches < c.Heartbeats+c.HeartbeatsFailed || c.ExchangeTime == 0 {
				t.Errorf("during the outage: %+v", c)
			}
			c.Failures, c.Batches, c.Heartbeats, c.HeartbeatsFailed, c.ExchangeTime = 0, 0, 0, 0, 0
			want.Lost = c.Lost // TestStats_CountLossesByReason
			if c != want {
				t.Errorf("during the outage: %+v, want %+v", c, want)
			}
			conn.cut.Store(false)
			mustAcquire(t, s, 1).Release()
			if c := s.Stats().Exchanges; c.Sessions != 2 || c.Grants != 2 {
				t.Errorf("after the outage: %+v", c)
			}
		})
	}
}

func TestStats_CountsWaiters(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, _ := newClient(t, memstore.New())
			var mu sync.Mutex
			queued := -1
			s := semaphore(t, c, of(1, mode, sema.MaxWait(time.Minute), sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == sema.EventQueued {
					queued = e.Waiters
				}
			}))))
			p := mustAcquire(t, s, 1)
			for n := range 2 {
				go s.Acquire(t.Context(), 1)
				synctest.Wait()
				mu.Lock()
				if got := s.Stats().Waiters; got != n+1 || queued != n+1 {
					t.Errorf("%d waiters by Stats, %d reported, want %d", got, queued, n+1)
				}
				mu.Unlock()
			}
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, sema.ErrFull)
			if fault := faultOf(t, err); fault.Waiters != 2 {
				t.Errorf("%v: %d waiters, want 2", err, fault.Waiters)
			}
			start := time.Now()
			_, err = s.Acquire(t.Context(), 1)
			wantErr(t, err, sema.ErrTimeout)
			if fault := faultOf(t, err); fault.Detail != "1m0s" || fault.Weight != 1 || time.Since(start) != time.Minute {
				t.Errorf("%v after %v", err, time.Since(start))
			}
			p.Release()
		})
	}
}

func TestStats_RejectionIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, otherVersion{memstore.New()})
		s := semaphore(t, c, of(5))
		_, err := s.Acquire(t.Context(), 1)
		wantErr(t, err, protocol.ErrVersion)
		time.Sleep(time.Second)
		if n := s.Stats().Failures; n != 0 {
			t.Errorf("%d failures although the store replied", n)
		}
	})
}

func TestStats_ReleaseOfARateKeepsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(10, fleet.Rate(time.Hour)))
		p := mustAcquire(t, s, 5)
		before := s.Stats()
		p.Release()
		if after := s.Stats(); after.InUse != before.InUse || after.Free != before.Free {
			t.Errorf("%d in use, %d free after the release; %d and %d before", after.InUse, after.Free, before.InUse, before.Free)
		}
	})
}

func TestStats_ReleaseOfALostPermitKeepsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, conn := newClient(t, store)
		b, _ := newClient(t, store)
		s := semaphore(t, a, of(5))
		lost := mustAcquire(t, s, 2)
		conn.cut.Store(true)
		<-lost.Lost()
		time.Sleep(time.Minute)
		mustAcquire(t, semaphore(t, b, of(5)), 4)
		conn.cut.Store(false)
		p := mustAcquire(t, s, 1)
		before := s.Stats().InUse
		lost.Release()
		if after := s.Stats().InUse; after != before {
			t.Errorf("%d in use after the release of a lost permit, %d before", after, before)
		}
		p.Release()
	})
}

func TestStats_SplitIsNotAcquired(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]fleet.Mode{"exact": fleet.ModeExact, "pooled": fleet.ModePooled} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := newClient(t, memstore.New())
				s := semaphore(t, c, of(5, mode))
				p := mustAcquire(t, s, 2)
				x, y, err := p.Split(1)
				wantErr(t, err, nil)
				if n := s.Stats().Acquired; n != 1 {
					t.Errorf("%d acquired, want 1", n)
				}
				x.Release()
				y.Release()
			})
		})
	}
}
