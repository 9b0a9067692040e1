package fleet_test

import (
	"io/fs"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestRegion_OpenerThatRequiresTheSemaphoreCreatesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTestRegion(t, memstore.New())
		by := protocol.Opener{Client: protocol.NewClient("test"), Owner: protocol.Owner{Key: protocol.NewKey()}, MustExist: true}
		whole := protocol.Config{Protocol: protocol.Version, Capacity: 2, TTL: 30_000_000}
		for _, config := range []protocol.Config{{Protocol: protocol.Version}, whole} {
			_, _, err := a.region.Open(t.Context(), "db", config, by)
			wantErr(t, err, fs.ErrNotExist)
			_, err = a.region.Inspect(t.Context(), "db")
			wantErr(t, err, fs.ErrNotExist)
		}
		mustAcquire(t, a.semaphore(t, of(2)), 1)
		_, config, err := a.region.Open(t.Context(), "db", protocol.Config{Protocol: protocol.Version}, by)
		if err != nil || config.Capacity != 2 {
			t.Errorf("%+v, %v", config, err)
		}
	})
}

func TestRegion_DeleteNamesTheVersionThatClientsSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newTestRegion(t, memstore.New())
		s := a.semaphore(t, of(2))
		mustAcquire(t, s, 1).Release()
		wantErr(t, a.client.Configure(t.Context(), "db", func(c *fleet.Config) { c.MaxWaiters = 3 }), nil)
		snapshot, err := a.region.Inspect(t.Context(), "db")
		wantErr(t, err, nil)
		deletion := func(version uint64) error {
			return a.region.Administer(t.Context(), "db", fleet.Command{Delete: true, DeleteVersion: version})
		}
		wantErr(t, deletion(snapshot.Config.Version+1), protocol.ErrConflict)
		if _, ok := a.region.Share("db"); !ok {
			t.Error("a delete that changed nothing ended the lease of the share")
		}
		mustAcquire(t, s, 2).Release()
		wantErr(t, deletion(snapshot.Config.Version), nil)
		_, err = a.region.Inspect(t.Context(), "db")
		wantErr(t, err, fs.ErrNotExist)
	})
}
