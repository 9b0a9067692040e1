package sema_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"pgregory.net/rapid"
)

// A counterCall is a Wait or a WaitUpTo, in the model and on the real counter.
type counterCall struct {
	least, most int64 // equal for a Wait
	waiting     bool
	want        error // the sentinel, once ended

	cancel context.CancelFunc
	done   bool
	got    int64
	err    error
}

// extra returns how much the call may still take after want was decided.
func (c *counterCall) extra() int64 {
	switch {
	case c.want == nil:
		return c.most - c.least
	case errors.Is(c.want, sema.ErrClosed) && c.least < c.most:
		return c.most
	}
	return 0
}

// A counterModel specifies what a counter must do. It leaves open which of several
// batches gets what is beyond its least: only the sum is certain.
type counterModel struct {
	lifo       bool
	max, value int64
	closed     bool
	calls      []*counterCall
	queue      []*counterCall
	longest    int            // greatest length of the queue so far
	counts     sema.Counts    // without Rejected, which compare adds
	justEnded  []*counterCall // calls ended by the current operation
}

func (m *counterModel) end(c *counterCall, err error) {
	c.waiting, c.want = false, err
	m.justEnded = append(m.justEnded, c)
}

func (m *counterModel) call(c *counterCall) {
	m.calls = append(m.calls, c)
	switch {
	case c.least > m.max:
		m.end(c, sema.ErrTooLarge)
	case m.closed && (m.value == 0 || m.value < c.least):
		m.end(c, sema.ErrClosed)
	case c.least == 0 || m.value >= c.least && (m.closed || m.lifo || len(m.queue) == 0):
		m.value -= c.least
		m.end(c, nil)
	default:
		m.counts.Waited++
		c.waiting = true
		if m.lifo {
			m.queue = slices.Insert(m.queue, 0, c)
		} else {
			m.queue = append(m.queue, c)
		}
	}
}

// serve serves the queue until one call does not fit. A closed counter ends all calls.
func (m *counterModel) serve() {
	for len(m.queue) > 0 {
		c := m.queue[0]
		fits := m.value >= c.least
		if !fits && !m.closed {
			return
		}
		m.queue = m.queue[1:]
		if fits {
			m.value -= c.least
			m.end(c, nil)
		} else {
			m.end(c, sema.ErrClosed)
		}
	}
}

// extras subtracts what the batches that just ended take beyond their least.
func (m *counterModel) extras() {
	if len(m.queue) == 0 || m.lifo {
		for _, c := range m.justEnded {
			m.value -= min(m.value, c.extra())
		}
	}
}

func (m *counterModel) compare(c *sema.Counter) error {
	m.extras()
	if c.Value() != m.value || c.Waiters() != len(m.queue) {
		return fmt.Errorf("%v, want %d of %d and %d waiting", c, m.value, m.max, len(m.queue))
	}
	counts := m.counts
	for i, r := range m.calls {
		if errors.Is(r.err, sema.ErrTooLarge) || errors.Is(r.err, sema.ErrClosed) {
			counts.Rejected++
		}
		if r.done == r.waiting {
			return fmt.Errorf("call %d for %d to %d: ended %v, want waiting %v", i, r.least, r.most, r.done, r.waiting)
		}
		switch {
		case r.waiting:
		case r.err == nil && r.want == nil && r.least <= r.got && r.got <= r.most:
		case r.err == nil && r.extra() > 0 && 0 < r.got && r.got <= r.most:
		case r.err != nil && errors.Is(r.err, r.want) && r.got == 0:
		default:
			return fmt.Errorf("call %d for %d to %d: %d, %v, want %v", i, r.least, r.most, r.got, r.err, r.want)
		}
	}
	want := sema.Stats{Capacity: m.max, Free: m.value, Waiters: len(m.queue), Closed: m.closed, Counts: counts}
	m.longest = max(m.longest, len(m.queue))
	return compareStats(c.Stats(), want, m.longest)
}

type counterOp string

var counterOps = []counterOp{"wait", "wait", "batch", "batch", "post", "post", "post", "cancel", "close"}

func TestCounter_BehavesLikeItsModel(t *testing.T) {
	for name, order := range map[string]sema.Option{"Fair": sema.Fair, "LIFO": sema.LIFO} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				// Sampled, because rapid draws small integers more often.
				kinds := rapid.SliceOfN(rapid.SampledFrom(counterOps), 20, 60).Draw(rt, "kinds")
				weights := rapid.SampledFrom([]int64{0, 1, 2, 3, 4, 5, 6, 7, 8})
				numbers := rapid.SliceOfN(weights, 2*len(kinds), 2*len(kinds)).Draw(rt, "numbers")
				if err := runCounterModel(t, order, kinds, numbers); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

func runCounterModel(t *testing.T, order sema.Option, kinds []counterOp, numbers []int64) (failure error) {
	synctest.Test(t, func(t *testing.T) {
		const top = 7
		c := sema.NewCounter(2, top, order)
		m := &counterModel{lifo: order == sema.Option(sema.LIFO), max: top, value: 2}
		defer func() {
			for _, r := range m.calls {
				r.cancel()
			}
		}()
		posted, taken := int64(2), int64(0)
		for i, kind := range kinds {
			a, b := numbers[2*i], numbers[2*i+1]
			m.justEnded = nil
			passed := time.Duration(a+b) * time.Second
			time.Sleep(passed)
			m.counts.WaitTime += time.Duration(len(m.queue)) * passed
			switch kind {
			case "wait", "batch":
				ctx, cancel := context.WithCancelCause(t.Context())
				r := &counterCall{least: a, most: a, cancel: func() { cancel(errCancelled) }}
				if kind == "batch" {
					r.most += b
				}
				go func() {
					if r.least == r.most {
						if r.err = c.Wait(ctx, r.least); r.err == nil {
							r.got = r.least
						}
					} else {
						r.got, r.err = c.WaitUpTo(ctx, r.least, r.most)
					}
					r.done = true
				}()
				m.call(r)
			case "post":
				if err := c.Post(a); (err == nil) != (a <= m.max-m.value) {
					failure = fmt.Errorf("post %d to %d: %v", a, m.value, err)
					return
				} else if err == nil {
					posted += a
					m.value += a
					m.serve()
				}
			case "cancel":
				if len(m.calls) == 0 {
					break
				}
				r := m.calls[int(a)%len(m.calls)]
				r.cancel()
				if r.waiting {
					m.counts.Cancelled++
					m.queue = slices.DeleteFunc(m.queue, func(o *counterCall) bool { return o == r })
					m.end(r, errCancelled)
					m.serve()
				}
			case "close":
				if a < 5 { // otherwise most runs would end early
					break
				}
				c.Close()
				m.closed = true
				m.serve()
			}
			synctest.Wait()
			if failure = m.compare(c); failure != nil {
				failure = fmt.Errorf("after %d operations of kinds %v, numbers %v: %w", i+1, kinds[:i+1], numbers[:2*i+2], failure)
				return
			}
		}
		for _, r := range m.calls {
			taken += r.got
		}
		if posted != taken+c.Value() {
			failure = fmt.Errorf("%d posted, %d taken, %d left", posted, taken, c.Value())
		}
	})
	return failure
}
