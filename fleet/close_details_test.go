package fleet_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

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
