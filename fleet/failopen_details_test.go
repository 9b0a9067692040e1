package fleet_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

func TestFailOpen_DrainStaysInEffect(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			c, conn := newClient(t, memstore.New())
			s := semaphore(t, c, of(5, mode, fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
			p := mustAcquire(t, s, 1)
			wantErr(t, c.Configure(t.Context(), "db", func(c *fleet.Config) { c.Draining = true }), nil)
			time.Sleep(10 * time.Second) // until the client knows
			conn.cut.Store(true)
			time.Sleep(time.Minute)
			if !s.Stats().FailedOpen {
				t.Fatal("the semaphore has not failed open")
			}
			for _, n := range []int64{0, 1} {
				_, err := s.Acquire(t.Context(), n)
				wantErr(t, err, sema.ErrDraining)
			}
			p.Release()
		})
	}
}

func TestOption_InvalidValuesAreRejected(t *testing.T) {
	t.Parallel()
	c := fleet.New(memstore.New())
	for _, opts := range [][]fleet.Option{
		{fleet.ModePooled + 1}, {fleet.ModePooled, fleet.Rate(time.Second)}, {fleet.Block(-1)}, {fleet.Quantum(-1)},
		{fleet.FailOpen(-1)}, {fleet.FailOpen(1), fleet.RecoverAfter(-1)},
		{fleet.FailOpen(1), fleet.FailOpenAfter(-1)}, {fleet.FailOpen(1), fleet.FailOpenAfter(time.Second - 1)},
		{fleet.FailOpenAfter(time.Second)}, {fleet.RecoverAfter(time.Second)}, {fleet.Block(2)}, {fleet.Quantum(time.Second)}, // without effect
		{fleet.Labels(map[string]string{"": "a"})}, {fleet.Labels(map[string]string{"a b": "a"})}, {fleet.Labels(map[string]string{"a=b": "a"})},
		{fleet.Labels(map[string]string{"a\"": "a"})}, {fleet.Labels(map[string]string{"a\n": "a"})},
	} {
		_, err := c.Semaphore("a", 1, opts...)
		wantErr(t, err, sema.ErrInvalid)
	}
	_, err := c.Semaphore("a\x7f", 1)
	wantErr(t, err, sema.ErrInvalid)
	_, err = c.Semaphore(strings.Repeat("~", 200), 1)
	wantErr(t, err, nil)
	for range 2 { // functions cannot be compared
		_, err = c.Semaphore("b", 1, sema.Observe(sema.ObserverFunc(func(sema.Event) {})))
		wantErr(t, err, nil)
	}
	_, err = fleet.Open(t.Context(), "redis://user:secret@%zz")
	if wantErr(t, err, sema.ErrInvalid); strings.Contains(err.Error(), "secret") {
		t.Errorf("%v contains the password", err)
	}
	wantErr(t, c.Close(t.Context()), nil)
	_, err = c.Semaphore("c", 1)
	wantErr(t, err, sema.ErrClosed)
}

func TestFailOpen_AppliesAfterFailOpenAfter(t *testing.T) {
	t.Parallel()
	for _, cut := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, conn := newClient(t, failingStore{memstore.New()})
			conn.cut.Store(cut)
			s := semaphore(t, c, of(5, fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
			start := time.Now()
			p := mustAcquire(t, s, 1)
			took, late := time.Since(start), time.Millisecond
			if cut { // the third exchange begins after two pauses
				late = 40 * time.Millisecond
			}
			if took < 3*time.Second || took > 3*time.Second+late {
				t.Errorf("failed open after %v, want 3 s without a reply", took)
			}
			p.Release()
		})
	}
}

func TestFailOpen_OneLostMessageIsNotEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		w := &wire{Store: memstore.New(), rtt: time.Millisecond}
		c, _ := newClient(t, w)
		s := semaphore(t, c, of(1, sema.Observe(&d), fleet.FailOpen(1), fleet.FailOpenAfter(time.Second)))
		p := mustAcquire(t, s, 1)
		for range 20 {
			w.lose.Store(1)
			time.Sleep(10 * time.Second)
		}
		if n := d.count(sema.EventFailedOpen); n > 0 {
			t.Errorf("failed open %d times after one lost message each", n)
		}
		p.Release()
	})
}

func TestFailOpen_ProbesTheStoreBetweenHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(5, fleet.TTL(3*time.Minute), fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second), fleet.RecoverAfter(4*time.Second)))
		p := mustAcquire(t, s, 1)
		conn.cut.Store(true)
		mustAcquire(t, s, 1).Release()
		if !s.Stats().FailedOpen {
			t.Fatal("the semaphore has not failed open")
		}
		conn.cut.Store(false)
		time.Sleep(7 * time.Second)
		if s.Stats().FailedOpen {
			t.Error("still failed open although the store has been reachable for 7 s")
		}
		wantErr(t, p.Err(), nil)
		p.Release()
	})
}

func TestFailOpen_PoolGrantsNoMoreThanTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(9, fleet.ModePooled, fleet.TTL(3*time.Minute), fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
		block := mustAcquire(t, s, 5)
		conn.cut.Store(true)
		p := mustAcquire(t, s, 1)
		block.Release() // into the pool, which still exists
		if stats := s.Stats(); !stats.FailedOpen || stats.Blocks != 5 || stats.HeldOpen != 1 {
			t.Fatalf("%+v", stats)
		}
		q := mustAcquire(t, s, 1)
		if _, leased := fleet.LeaseOf(q); leased {
			t.Error("the permit is from the pool")
		}
		q.Release()
		_, err := s.TryAcquire(t.Context(), 2)
		wantErr(t, err, sema.ErrFull)
		p.Release()
	})
}

func TestFailOpen_CloseWaitsForPermitsOfTheLocalLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, conn := newClient(t, memstore.New())
		s := semaphore(t, c, of(3, fleet.FailOpen(2), fleet.FailOpenAfter(3*time.Second)))
		conn.cut.Store(true)
		p := mustAcquire(t, s, 1)
		start := time.Now()
		time.AfterFunc(5*time.Second, p.Release)
		wantErr(t, c.Close(t.Context()), nil)
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
