package pool_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"pgregory.net/rapid"
)

// The model specifies which callers have an item, wait or have failed, in simple code.
// Each operation is applied to the model and to a pool. When all goroutines are blocked or
// have ended, both must agree on everything that is visible.

// A caller is a Get in the model.
type caller struct {
	cancel  context.CancelFunc
	got     <-chan result
	waiting bool
	item    pool.Item[*conn] // if it holds one
	held    bool
}

// A model is a pool whose Open takes no time and fails while the server is down.
type model struct {
	size    int64
	idle    []*conn // the last one is lent next
	lent    int64
	kept    []sema.Permit
	waiting []*caller
	old     map[*conn]bool // opened before a Reset
	opened  int64
	failed  int64
	closed  int64
	closes  bool
	down    atomic.Bool // Open fails
}

func (m *model) open() int64 { return int64(len(m.idle)) + m.lent + int64(len(m.kept)) }

// inUse returns the permits held.
func (m *model) inUse() int64 { return m.lent + int64(len(m.kept)) }

// shrink closes surplus idle items, the one used last at the end.
func (m *model) shrink() {
	for m.open() > m.size && len(m.idle) > 0 {
		m.idle = m.idle[1:]
		m.closed++
	}
}

func TestPool_BehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { runModel(rt) })
	})
}

func runModel(rt *rapid.T) {
	s := &server{}
	m := &model{size: rapid.Int64Range(1, 3).Draw(rt, "size"), old: map[*conn]bool{}}
	s.open = func(context.Context, int) error {
		if m.down.Load() {
			return errors.New("down")
		}
		return nil
	}
	conf := pool.Config[*conn]{Size: m.size, Open: s.Open, Close: s.Close, MaxOpening: rapid.IntRange(0, 2).Draw(rt, "MaxOpening")}
	if rapid.Bool().Draw(rt, "a lifetime that never ends") {
		conf.MaxLifetime = 1000 * time.Hour
	}
	if rapid.Bool().Draw(rt, "a gate that admits all") {
		conf.Gate = sema.New(100)
	}
	p := pool.New(conf)
	var callers []*caller
	defer func() {
		p.Close()
		for _, c := range callers {
			c.cancel()
			c.item.Release()
		}
	}()
	pick := func(of func(*caller) bool) *caller {
		some := slices.DeleteFunc(slices.Clone(callers), func(c *caller) bool { return !of(c) })
		if len(some) == 0 {
			return nil
		}
		return some[rapid.IntRange(0, len(some)-1).Draw(rt, "caller")]
	}
	// settle serves the waiters of the model, and compares.
	settle := func() {
		synctest.Wait()
		for m.inUse() < m.size && len(m.waiting) > 0 {
			c := m.waiting[0]
			m.waiting = m.waiting[1:]
			c.waiting = false
			r := take(rt, c)
			if len(m.idle) == 0 && m.down.Load() {
				m.failed++
				if r.err == nil {
					rt.Fatal("an item of a server that is down")
				}
				continue
			}
			if r.err != nil {
				rt.Fatalf("a Get: %v, want an item", r.err)
			}
			c.item, c.held = r.item, true
			m.lent++
			if n := len(m.idle); n > 0 {
				if r.item.Value() != m.idle[n-1] {
					rt.Fatalf("conn %d, want %d, which was used last", r.item.Value().id, m.idle[n-1].id)
				}
				m.idle = m.idle[:n-1]
			} else {
				m.opened++
			}
		}
		for _, c := range m.waiting {
			if len(c.got) > 0 {
				rt.Fatalf("a waiting Get returned: %v", (<-c.got).err)
			}
		}
		st := p.Stats()
		got := []int64{st.Open, st.Idle, st.Lent, st.Kept, st.InUse, int64(st.Waiters), st.Pending, st.Opens, st.OpenErrors, st.Closes}
		want := []int64{m.open(), int64(len(m.idle)), m.lent, int64(len(m.kept)), m.inUse(), int64(len(m.waiting)), 0, m.opened, m.failed, m.closed}
		if !slices.Equal(got, want) {
			rt.Fatalf("open, idle, lent, kept, in use, waiters, pending, opens, errors, closes:\n%v, want\n%v", got, want)
		}
	}
	// end ends the lending of a caller's item.
	end := func(c *caller, broken bool) {
		v := c.item.Value()
		surplus := m.open() > m.size
		m.lent--
		c.held = false
		if broken || surplus || m.old[v] || m.closes {
			m.closed++
		} else {
			m.idle = append(m.idle, v)
		}
	}
	holds := func(c *caller) bool { return c.held }
	rt.Repeat(map[string]func(*rapid.T){
		"get": func(rt *rapid.T) {
			ctx, cancel := context.WithCancel(context.Background())
			c := &caller{cancel: cancel, waiting: true, got: getting(ctx, p)}
			if m.closes {
				if r := take(rt, c); !errors.Is(r.err, sema.ErrClosed) {
					rt.Fatalf("after Close: %v", r.err)
				}
				cancel()
				return
			}
			callers = append(callers, c)
			m.waiting = append(m.waiting, c)
		},
		"release": func(*rapid.T) {
			if c := pick(holds); c != nil {
				end(c, false)
				c.item.Release()
				c.item.Release()
			}
		},
		"discard": func(*rapid.T) {
			if c := pick(holds); c != nil {
				end(c, true)
				c.item.Discard()
				c.item.Release()
			}
		},
		"keep": func(*rapid.T) {
			if c := pick(holds); c != nil {
				_, permit := c.item.Keep()
				m.lent--
				c.held = false
				m.kept = append(m.kept, permit)
			}
		},
		"drop": func(*rapid.T) {
			if n := len(m.kept); n > 0 {
				m.kept[n-1].Release()
				m.kept = m.kept[:n-1]
			}
		},
		"cancel": func(*rapid.T) {
			c := pick(func(c *caller) bool { return c.waiting })
			if c == nil {
				return
			}
			c.cancel()
			c.waiting = false
			m.waiting = slices.DeleteFunc(m.waiting, func(o *caller) bool { return o == c })
			synctest.Wait()
			if r := take(rt, c); r.err != context.Canceled {
				rt.Fatalf("a cancelled Get: %v", r.err)
			}
		},
		"resize": func(rt *rapid.T) {
			m.size = rapid.Int64Range(0, 4).Draw(rt, "size")
			p.Resize(m.size)
			m.shrink()
		},
		"reset": func(*rapid.T) {
			m.closed += int64(len(m.idle))
			m.idle = nil
			for _, c := range callers {
				if c.held {
					m.old[c.item.Value()] = true
				}
			}
			p.Reset()
		},
		"server":    func(*rapid.T) { m.down.Store(!m.down.Load()) },
		"pass time": func(*rapid.T) { time.Sleep(time.Hour) },
		"close": func(rt *rapid.T) {
			if rapid.IntRange(0, 20).Draw(rt, "close") > 0 {
				return
			}
			p.Close()
			m.closes = true
			m.closed += int64(len(m.idle))
			m.idle = nil
			synctest.Wait()
			for _, c := range m.waiting {
				c.waiting = false
				if r := take(rt, c); !errors.Is(r.err, sema.ErrClosed) {
					rt.Fatalf("a waiter of Close: %v", r.err)
				}
			}
			m.waiting = nil
		},
		"": func(*rapid.T) { settle() },
	})
}

// take returns the result of a Get that must have returned.
func take(rt *rapid.T, c *caller) result {
	select {
	case r := <-c.got:
		return r
	default:
		rt.Fatal("a Get waits, want a result")
		return result{}
	}
}
