package fleet_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestRate_HoldsAcrossClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		start := time.Now()
		var wg sync.WaitGroup
		for range 3 {
			c, _ := newClient(t, store)
			s := semaphore(t, c, of(10, fleet.Rate(time.Second)))
			for range 10 {
				wg.Go(func() { mustAcquire(t, s, 1).Release() })
			}
		}
		wg.Wait()
		if took := time.Since(start); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("30 acquires at 10 per second took %v, want 2 s", took)
		}
	})
}

func TestRate_PermitsAreNeitherHeldNorLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(4, fleet.Rate(time.Hour), sema.Observe(&d)))
		p := mustAcquire(t, s, 1)
		if held := s.Stats().Held; held != 0 {
			t.Errorf("%d permits are held, want 0", held)
		}
		conn.cut.Store(true)
		time.Sleep(time.Minute)
		wantErr(t, p.Err(), nil)
		select {
		case <-p.Lost():
			t.Error("a permit of a rate is lost")
		default:
		}
		p.Release()
		if stats := s.Stats(); stats.Releases != 0 || stats.SessionsLost != 1 || d.count(sema.EventLost) != 0 {
			t.Errorf("%+v", stats)
		}
	})
}

func TestRate_LeftAndDefaultTTL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(4, fleet.Rate(time.Hour)))
		if _, err := c.Semaphore("db", 4, fleet.Rate(time.Hour), fleet.TTL(15*time.Second)); err != nil {
			t.Error("the default TTL of 15 s is rejected as another TTL")
		}
		p := mustAcquire(t, s, 1)
		conn.cut.Store(true)
		time.Sleep(time.Minute)
		if l, _ := fleet.LeaseOf(p); p.Err() == nil && l.Left == 0 {
			t.Error("a permit of a rate is not lost, but Left is 0")
		}
	})
}
