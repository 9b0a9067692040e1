package fleet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
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
