package wfq_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// A modelled queue is used by random operations, and compared with what they should do.
type modelled struct {
	q        *wfq.Queue
	capacity int64
	shares   map[string]wfq.Share
	calls    []*call
	held     map[string]int64
	draining bool
}

// A call is one acquire.
type call struct {
	class  string
	n      int64
	cancel context.CancelFunc
	done   chan struct{}
	permit sema.Permit
	err    error
	held   bool
}

var classNames = []string{"a", "b", "c", "d"}

func TestQueue_KeepsItsInvariants(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			opts := []wfq.Option{}
			if rapid.Bool().Draw(rt, "aging") {
				opts = append(opts, wfq.Aging(10*time.Millisecond))
			}
			if n := rapid.IntRange(0, 6).Draw(rt, "max waiters"); n > 0 {
				opts = append(opts, sema.MaxWaiters(n))
			}
			m := &modelled{capacity: 4, shares: map[string]wfq.Share{}, held: map[string]int64{}}
			m.q = wfq.New(m.capacity, opts...)
			defer m.end(rt)
			steps := rapid.IntRange(1, 60).Draw(rt, "steps")
			for range steps {
				m.step(rt)
				synctest.Wait()
				m.check(rt)
			}
		})
	})
}

func (m *modelled) step(rt *rapid.T) {
	class := rapid.SampledFrom(classNames).Draw(rt, "class")
	switch rapid.SampledFrom([]string{"acquire", "acquire", "acquire", "try", "release", "release", "cancel", "share", "resize", "pause", "drain"}).Draw(rt, "step") {
	case "acquire":
		m.acquire(class, rapid.Int64Range(1, 3).Draw(rt, "n"), m.q.Class(class).Acquire)
	case "try":
		m.acquire(class, rapid.Int64Range(1, 3).Draw(rt, "n"), m.q.Class(class).TryAcquire)
	case "release":
		for _, c := range m.calls {
			if c.held {
				c.held = false
				m.held[c.class] -= c.n
				c.permit.Release()
				break
			}
		}
	case "cancel":
		for _, c := range m.calls {
			if !c.ended() {
				c.cancel()
				break
			}
		}
	case "share":
		s := wfq.Share{
			Weight: rapid.Int64Range(0, 3).Draw(rt, "weight"), Min: rapid.Int64Range(0, 2).Draw(rt, "min"),
			Tier: rapid.IntRange(-1, 1).Draw(rt, "tier"), Order: wfq.Order(rapid.IntRange(0, 3).Draw(rt, "order")),
			MaxWaiters: rapid.IntRange(-1, 3).Draw(rt, "waiters"),
		}
		if max := rapid.Int64Range(1, 4).Draw(rt, "max"); max < 4 {
			s.Max, s.Min = max, min(s.Min, max)
		}
		m.shares[class] = s
		m.q.Set(class, s)
	case "resize":
		m.capacity = rapid.Int64Range(0, 6).Draw(rt, "capacity")
		m.q.Resize(m.capacity)
	case "pause":
		time.Sleep(time.Duration(rapid.IntRange(1, 30).Draw(rt, "ms")) * time.Millisecond)
	case "drain":
		if m.draining = !m.draining; m.draining {
			expired, cancel := context.WithCancel(ctx)
			cancel()
			m.q.Drain(expired)
		} else {
			m.q.Resume()
		}
	}
}

func (m *modelled) acquire(class string, n int64, acquire func(context.Context, int64) (sema.Permit, error)) {
	ctx, cancel := context.WithCancel(ctx)
	c := &call{class: class, n: n, cancel: cancel, done: make(chan struct{})}
	m.calls = append(m.calls, c)
	go func() {
		c.permit, c.err = acquire(ctx, n)
		close(c.done)
	}()
}

func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// check compares the queue with what was granted.
func (m *modelled) check(rt *rapid.T) {
	m.q.Stats() // an event: time may have raised a class, which is served at the next one
	synctest.Wait()
	waiting := 0
	for _, c := range m.calls {
		switch {
		case !c.ended():
			waiting++
		case c.err == nil && c.permit.Held() && !c.held:
			c.held = true
			m.held[c.class] += c.n
		}
	}
	total := int64(0)
	for _, n := range m.held {
		total += n
	}
	st := m.q.Stats()
	if st.InUse != total || st.Waiters != waiting || st.Capacity != m.capacity || st.Free != max(0, m.capacity-total) || st.Draining != m.draining {
		rt.Fatalf("%+v, want %d of %d in use, %d waiting", st, total, m.capacity, waiting)
	}
	for name, class := range m.q.Classes() {
		if class.InUse != m.held[name] {
			rt.Fatalf("class %s: %d in use, want %d", name, class.InUse, m.held[name])
		}
	}
	if err := m.q.CheckInvariants(); err != nil {
		rt.Fatal(err)
	}
}

// end cancels and releases all, and wants everything free.
func (m *modelled) end(rt *rapid.T) {
	m.q.Resume()
	for _, c := range m.calls {
		c.cancel()
	}
	synctest.Wait()
	for _, c := range m.calls {
		if !c.ended() {
			rt.Fatal("a cancelled acquire has not ended")
		}
		if c.err != nil && !errors.Is(c.err, sema.ErrFull) && !errors.Is(c.err, sema.ErrTooLarge) && !errors.Is(c.err, sema.ErrDraining) && !errors.Is(c.err, context.Canceled) {
			rt.Fatalf("unexpected error: %v", c.err)
		}
		c.permit.Release()
	}
	if st := m.q.Stats(); st.InUse != 0 || st.Waiters != 0 {
		rt.Fatalf("in the end: %+v", st)
	}
	if err := m.q.CheckInvariants(); err != nil {
		rt.Fatal(fmt.Errorf("in the end: %w", err))
	}
}
