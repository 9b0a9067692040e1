package pool_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
)

var stressOps = flag.Int("stress.ops", 60_000, "total number of racing operations in the stress tests")

// A racer is an item of the stress test.
type racer struct {
	users  atomic.Int32
	closed atomic.Bool
}

// TestPool_ItemsAreConservedUnderStress races all operations. It checks that no item is
// lent twice or after it was closed, that no more are open than Size, and that at the end
// no item and no permit is lost.
func TestPool_ItemsAreConservedUnderStress(t *testing.T) {
	const size = 4
	for name, c := range map[string]pool.Config[*racer]{
		"Size":      {},
		"Check":     {CheckAfter: 2 * time.Millisecond},
		"CheckAll":  {MaxOpening: 2},
		"Expiry":    {MaxIdleTime: 2 * time.Millisecond, MaxLifetime: 5 * time.Millisecond, MinIdle: 2},
		"Gate":      {Gate: sema.New(size + 2)},
		"Observed":  {Options: []sema.Option{sema.Observe(sema.ObserverFunc(func(sema.Event) {}))}},
		"Unordered": {Options: []sema.Option{sema.Unfair}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &stressed{t: t}
			c.Size, c.Open, c.Close = size, x.open, x.close
			if name == "Check" || name == "CheckAll" {
				c.Check = x.check
			}
			x.pool = pool.New(c)
			x.run(*stressOps / 7)
			if most := x.most.Load(); most > size {
				t.Errorf("%d items were open at once, Size is %d", most, size)
			}
			st := x.pool.Stats()
			if st.InUse != 0 || st.Waiters != 0 || st.Pending != 0 || st.Kept != 0 || st.Lent != 0 {
				t.Errorf("before Close %+v", st)
			}
			x.pool.Close()
			if err := x.pool.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(time.Minute); x.alive.Load() != 0 || x.pool.Stats().Open != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d items are open after Close: %+v", x.alive.Load(), x.pool.Stats())
				}
			}
			if st := x.pool.Stats(); st.Opens != st.Closes+st.Keeps {
				t.Errorf("%d opened, %d closed, %d kept", st.Opens, st.Closes, st.Keeps)
			}
		})
	}
}

type stressed struct {
	t           *testing.T
	pool        *pool.Pool[*racer]
	alive, most atomic.Int64
	opened      atomic.Int64
}

func (x *stressed) open(context.Context) (*racer, error) {
	alive := x.alive.Add(1)
	for most := x.most.Load(); alive > most && !x.most.CompareAndSwap(most, alive); most = x.most.Load() {
	}
	if x.opened.Add(1)%7 == 0 {
		x.alive.Add(-1)
		return nil, errDown
	}
	return new(racer), nil
}

func (x *stressed) check(context.Context, *racer) error {
	if rand.N(8) == 0 {
		return errDown
	}
	return nil
}

func (x *stressed) close(r *racer) {
	if r.users.Load() != 0 || r.closed.Swap(true) {
		x.t.Error("an item is closed twice, or while it is used")
	}
	x.alive.Add(-1)
}

func (x *stressed) run(ops int) {
	const workers = 16
	stop := make(chan struct{})
	var working, operating sync.WaitGroup
	operating.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(300 * time.Microsecond):
			}
			if i%16 == 0 {
				x.pool.Reset()
			}
			x.pool.Stats()
		}
	})
	for w := range workers {
		working.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range ops / workers {
				x.once(rng)
			}
		})
	}
	working.Wait()
	close(stop)
	operating.Wait()
}

func (x *stressed) once(rng *rand.Rand) {
	ctx, cancel := context.Background(), func() {}
	get := x.pool.Get
	switch rng.IntN(8) {
	case 0:
		get = x.pool.TryGet
	case 1:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(100))*time.Microsecond)
	}
	item, err := get(ctx)
	cancel()
	if err != nil {
		if !errors.Is(err, errDown) && !errors.Is(err, sema.ErrFull) && !errors.Is(err, context.DeadlineExceeded) {
			x.t.Error(err)
		}
		return
	}
	r := item.Value()
	if r.users.Add(1) != 1 || r.closed.Load() {
		x.t.Error("an item is lent twice, or after it was closed")
	}
	r.users.Add(-1)
	stale := item
	switch rng.IntN(16) {
	case 0:
		item.Discard()
	case 1:
		kept, permit := item.Keep()
		x.close(kept)
		permit.Release()
	case 2:
		done := make(chan struct{})
		go func() { item.Release(); close(done) }() // copies race
		stale.Discard()
		<-done
	default:
		item.Release()
	}
	stale.Release()
	stale.Discard()
}

func TestPool_AllocatesNothing(t *testing.T) {
	for name, c := range map[string]pool.Config[int]{
		"Size": {Size: 8}, "Check": {Size: 8, Check: func(context.Context, int) error { return nil }, CheckAfter: time.Hour, MaxLifetime: 24 * time.Hour},
	} {
		c.Open = func(context.Context) (int, error) { return 0, nil }
		p := pool.New(c)
		ctx := t.Context()
		if n := testing.AllocsPerRun(1000, func() {
			a, err := p.Get(ctx)
			b, err2 := p.Get(ctx)
			if err != nil || err2 != nil || a.Value() != 0 || !a.Permit().Held() {
				t.Fatal(err, err2)
			}
			b.Release()
			a.Release()
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		p.Close()
	}
}

// TestPool_OpensNoMoreThanItNeeds: an item is idle before its permit is free. Otherwise a
// caller that gets the permit finds no item, and opens one.
func TestPool_OpensNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{1, 3} {
		s := &server{}
		p := newPool(t, s, pool.Config[*conn]{Size: size})
		var working sync.WaitGroup
		for range 8 {
			working.Go(func() {
				for range *stressOps / 4 {
					item, err := p.Get(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					item.Release()
				}
			})
		}
		working.Wait()
		if opened, _ := s.count(); int64(opened) > size {
			t.Errorf("%d conns opened, Size is %d", opened, size)
		}
	}
}
