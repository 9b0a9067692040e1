package rate_test

import (
	"context"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/rate"
)

// TestGate_SettleCountsOnce settles a permit again after the bucket was full, when it can no
// longer be refunded.
func TestGate_SettleCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		p := must(t, g, 1)
		g.Settle(p, 3)
		time.Sleep(time.Second)
		must(t, g, 1)
		g.Settle(p, 3)
		wantFree(t, g, 9)
	})
}

// TestGate_SettleAfterAFullBucket charges a permit whose cost is known late.
func TestGate_SettleAfterAFullBucket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(10, time.Second)
		p := must(t, g, 1)
		time.Sleep(time.Minute)
		must(t, g, 1)
		g.Settle(p, 3)
		wantFree(t, g, 7)
	})
}

func TestGate_SettleHugeCosts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := rate.New(4, time.Second)
		a, b, c := must(t, g, 1), must(t, g, 1), must(t, g, 1)
		for _, p := range []sema.Permit{a, b, c} {
			g.Settle(p, math.MaxInt64)
			st := g.Stats()
			if st.Free != 0 || st.Debt <= 0 || st.InUse != st.Capacity+st.Debt {
				t.Errorf("%+v, want a debt", st)
			}
			if delay := g.Delay(1); delay < 100*365*24*time.Hour {
				t.Errorf("Delay %v, want centuries", delay)
			}
		}
		time.Sleep(time.Hour)
		wantFree(t, g, 0)
	})
}

// TestGate_PanicOfAnObserverRefunds checks that a permit that the caller does not get is not
// spent.
func TestGate_PanicOfAnObserverRefunds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := true
		g := rate.New(5, time.Hour, sema.Observe(sema.ObserverFunc(func(e sema.Event) {
			if e.Kind == sema.EventAcquired && broken {
				panic("broken observer")
			}
		})))
		for _, acquire := range []func(context.Context, int64) (sema.Permit, error){g.Acquire, g.TryAcquire} {
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic of the observer was lost")
					}
				}()
				acquire(t.Context(), 3)
			}()
			wantFree(t, g, 5)
		}
		broken = false
		must(t, g, 5)
	})
}

type uncomparable []string

func (u uncomparable) Error() string { return u[0] }

// TestGate_CauseIsReturnedAsItIs checks that the cause of a context is not taken for an error
// of the gate, also if the wait was decided in the same instant.
func TestGate_CauseIsReturnedAsItIs(t *testing.T) {
	for _, ends := range []time.Duration{500 * time.Millisecond, time.Second} {
		t.Run(ends.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				for _, cause := range []error{sema.ErrClosed, sema.ErrTimeout, sema.ErrFull, uncomparable{"a"}} {
					g := rate.New(1, time.Second)
					must(t, g, 1)
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(ends, func() { cancel(cause) })
					p, err := g.Acquire(ctx, 1)
					if p.Weight() != 0 || err == nil {
						if ends < time.Second {
							t.Errorf("%v: acquired %v", cause, p)
						}
						continue // granted just before
					}
					if reflect.TypeOf(err) != reflect.TypeOf(cause) || err.Error() != cause.Error() {
						t.Errorf("%v, want %v as it is", err, cause)
					}
					if st := g.Stats(); st.Cancelled != 1 || st.Rejected+st.TimedOut != 0 {
						t.Errorf("%v: %+v", cause, st.Counts)
					}
				}
			})
		})
	}
}
