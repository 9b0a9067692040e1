package fleet_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func TestADeletedSemaphoreAndItsSuccessorDoNotShareASession(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		a, _ := join(t, store)
		b, _ := join(t, store)
		old := mustAcquire(t, semaphore(t, a, fleet.Options{Capacity: 1}), 1)
		time.Sleep(time.Second)
		wantErr(t, a.Delete(context.Background(), "db"), nil)
		p := mustAcquire(t, semaphore(t, b, fleet.Options{Capacity: 1}), 1)
		time.Sleep(time.Minute)
		wantErr(t, old.Err(), sema.ErrLost)
		wantErr(t, p.Err(), nil)
	})
}

// A dropOnce swallows one batch, and works again.
type dropOnce struct {
	*link
	drop atomic.Bool
}

func (d *dropOnce) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if d.drop.CompareAndSwap(true, false) {
		<-ctx.Done()
		return protocol.Reply{}, errCut
	}
	return d.link.Apply(ctx, name, b)
}

func TestOneLostMessageLosesNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dropOnce{link: &link{Store: memstore.New(), delay: time.Millisecond}}
		c, _ := join(t, d)
		p := mustAcquire(t, semaphore(t, c, fleet.Options{Capacity: 1}), 1)
		d.drop.Store(true)
		time.Sleep(time.Minute)
		if d.drop.Load() {
			t.Error("nothing was dropped")
		}
		wantErr(t, p.Err(), nil)
	})
}

func TestReleaseMayRaceClose(t *testing.T) {
	t.Parallel()
	for range 50 {
		c := fleet.New(memstore.New())
		s := semaphore(t, c, fleet.Options{Capacity: 100})
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

func TestReleaseThatNobodyHearsReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		p := mustAcquire(t, semaphore(t, c, fleet.Options{Capacity: 1}), 1)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Close(ctx)
		wantErr(t, fleet.Release(context.Background(), p), sema.ErrLost)
	})
}

func TestAnObserverMayPanicOrClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		c, line := join(t, store)
		fragile, err := c.Semaphore("fragile", fleet.Options{Capacity: 1, Observer: sema.ObserverFunc(func(sema.Event) { panic("observer") })})
		wantErr(t, err, nil)
		func() {
			defer func() { recover() }()
			fragile.Acquire(context.Background(), 1)
		}()
		time.Sleep(time.Second)
		if s, err := store.Inspect(context.Background(), "fragile"); err == nil && s.InUse+int64(len(s.Line)) > 0 {
			t.Errorf("%+v is left behind", s)
		}
		closed := make(chan struct{})
		s, err := c.Semaphore("closing", fleet.Options{Capacity: 1, Observer: sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.Lost {
				c.Close(context.Background())
				close(closed)
			}
		})})
		wantErr(t, err, nil)
		mustAcquire(t, s, 1)
		line.cut.Store(true)
		<-closed
	})
}

func TestADrainingSemaphoreRefusesNothingToo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := join(t, memstore.New())
		s := semaphore(t, c, fleet.Options{Capacity: 1})
		p := mustAcquire(t, s, 1)
		wantErr(t, c.Configure(context.Background(), "db", func(config *protocol.Config) { config.Draining = true }), nil)
		p.Release()
		time.Sleep(time.Second)
		_, err := s.Acquire(context.Background(), 0)
		wantErr(t, err, sema.ErrDraining)
	})
}
