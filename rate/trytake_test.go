package rate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

func TestGate_TryTakeIsTryAcquireWithoutErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := 0
		for _, opts := range [][]rate.Option{nil, {sema.Observe(sema.ObserverFunc(func(sema.Event) { events++ }))}} {
			g := rate.New(2, time.Second, opts...)
			p, ok := g.TryTake(2)
			if !ok || p.Weight() != 2 {
				t.Fatalf("%v, %v", p, ok)
			}
			if _, ok := g.TryTake(1); ok {
				t.Error("granted more than the burst")
			}
			if _, ok := g.TryTake(-1); ok {
				t.Error("granted a negative weight")
			}
			if st := g.Stats(); st.Acquired != 1 || st.Rejected != 1 {
				t.Errorf("counted %+v", st.Counts)
			}
			g.Settle(p, 0)
			if _, ok := g.TryTake(2); !ok {
				t.Error("the refund is not available")
			}
		}
		if events == 0 {
			t.Error("observers saw nothing")
		}
	})
}
