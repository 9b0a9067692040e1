package classic_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"pgregory.net/rapid"
)

// An rwCaller is a call of Acquire in the model of a lock.
type rwCaller struct {
	*call[sema.Permit]
	cancel context.CancelFunc
	writer bool
	n      int64
}

// An rwModel specifies which callers a lock serves, in simple code: after each operation the queue is
// searched for the next caller until none can be served.
type rwModel struct {
	preference classic.Preference
	most       int64
	readers    int64
	writing    bool
	queue      []*rwCaller // in order of arrival
	held       []*rwCaller
}

func (m *rwModel) fits(c *rwCaller) bool {
	if c.writer {
		return !m.writing && m.readers == 0
	}
	return !m.writing && m.readers+c.n <= m.most
}

// next returns the index of the caller that is served next, -1 if there is none.
func (m *rwModel) next() int {
	preferred := func(*rwCaller) bool { return true }
	switch m.preference {
	case classic.PreferReaders:
		preferred = func(c *rwCaller) bool { return !c.writer }
	case classic.PreferWriters:
		preferred = func(c *rwCaller) bool { return c.writer }
	}
	i := slices.IndexFunc(m.queue, preferred)
	if i < 0 && len(m.queue) > 0 {
		i = 0
	}
	return i
}

func (m *rwModel) hold(c *rwCaller, sign int64) {
	if c.writer {
		m.writing = sign > 0
	} else {
		m.readers += sign * c.n
	}
}

func TestRWLock_BehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { runRWModel(rt) })
	})
}

func runRWModel(rt *rapid.T) {
	m := &rwModel{preference: rapid.SampledFrom(preferences).Draw(rt, "preference"), most: rapid.Int64Range(1, 4).Draw(rt, "MaxReaders")}
	opts := []classic.RWOption{classic.MaxReaders(m.most)}
	if rapid.Bool().Draw(rt, "observed") {
		opts = append(opts, sema.Observe(&journal{}))
	}
	l := classic.NewRWLock(m.preference, opts...)
	defer func() {
		for _, c := range m.queue {
			c.cancel()
		}
		for _, c := range m.held {
			c.value.Release()
			c.cancel()
		}
	}()
	gate := func(writer bool) sema.Gate {
		if writer {
			return l.Writer()
		}
		return l.Reader()
	}
	settle := func() {
		for i := m.next(); i >= 0 && m.fits(m.queue[i]); i = m.next() {
			c := m.queue[i]
			m.queue = slices.Delete(m.queue, i, i+1)
			m.hold(c, 1)
			m.held = append(m.held, c)
		}
		synctest.Wait()
		for _, c := range m.queue {
			if c.ended.Load() {
				rt.Fatalf("a caller that waits in the model returned: %v", c.err)
			}
		}
		for _, c := range m.held {
			if !c.ended.Load() || c.err != nil {
				rt.Fatalf("a caller that the model serves: ended %v, %v", c.ended.Load(), c.err)
			}
		}
		st := l.Stats()
		if st.Readers.InUse != m.readers || (st.Writers.InUse == 1) != m.writing || st.Readers.Waiters+st.Writers.Waiters != len(m.queue) {
			rt.Fatalf("%+v, want %d readers, writing %v, %d waiting", st, m.readers, m.writing, len(m.queue))
		}
	}
	pick := func(from []*rwCaller) int {
		if len(from) == 0 {
			return -1
		}
		return rapid.IntRange(0, len(from)-1).Draw(rt, "caller")
	}
	rt.Repeat(map[string]func(*rapid.T){
		"acquire": func(rt *rapid.T) {
			c := &rwCaller{writer: rapid.Bool().Draw(rt, "writer"), n: 1}
			if !c.writer {
				c.n = rapid.Int64Range(1, m.most).Draw(rt, "weight")
			}
			var ctx context.Context
			ctx, c.cancel = context.WithCancel(context.Background())
			c.call = acquiring(ctx, gate(c.writer), c.n)
			m.queue = append(m.queue, c)
		},
		"try": func(rt *rapid.T) {
			c := &rwCaller{writer: rapid.Bool().Draw(rt, "writer"), n: 1, cancel: func() {}}
			p, err := gate(c.writer).TryAcquire(context.Background(), 1)
			m.queue = append(m.queue, c) // would it be served at once?
			i := m.next()
			served := m.queue[i] == c && m.fits(c)
			m.queue = m.queue[:len(m.queue)-1]
			if served != (err == nil) {
				rt.Fatalf("a try: %v, want success %v", err, served)
			}
			if served {
				c.call = &call[sema.Permit]{value: p}
				c.ended.Store(true)
				m.hold(c, 1)
				m.held = append(m.held, c)
			}
		},
		"release": func(*rapid.T) {
			if i := pick(m.held); i >= 0 {
				c := m.held[i]
				m.held = slices.Delete(m.held, i, i+1)
				m.hold(c, -1)
				c.value.Release()
				c.value.Release()
				c.cancel()
			}
		},
		"cancel": func(*rapid.T) {
			if i := pick(m.queue); i >= 0 {
				c := m.queue[i]
				m.queue = slices.Delete(m.queue, i, i+1)
				c.cancel()
				synctest.Wait()
				if c.err != context.Canceled {
					rt.Fatalf("a cancelled caller: %v", c.err)
				}
			}
		},
		"": func(*rapid.T) { settle() },
	})
}
