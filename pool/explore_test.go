package pool_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/sematest"
)

// TestPool_Explored runs callers that give up, discard, keep and fail, a Reset and a Resize
// under many schedules. Open, Check and Close are steps: others run meanwhile.
func TestPool_Explored(t *testing.T) {
	t.Parallel()
	const size = 2
	sematest.Explore(t, func(w *sematest.World) {
		x := &explored{World: w, users: map[*conn]string{}}
		c := pool.Config[*conn]{Size: size, Open: x.open, Close: x.close, Check: x.check, Gate: w.Gate(sema.New(3, sema.Name("gate")))}
		p := pool.New(c)
		x.pool = p
		w.Always("no more conns are open than Size", func() bool { return x.alive <= size })
		w.Always("the state adds up", func() bool {
			st := p.Stats()
			return st.Open <= size && st.Idle >= 0 && st.Lent >= 0 && st.Opens == st.Closes+st.Keeps+st.Open-st.Opening-st.Kept
		})
		w.Finally("no permit is held and no caller waits", func() bool {
			st := p.Stats()
			return st.InUse == 0 && st.Waiters == 0 && st.Pending == 0
		})
		for i := range 4 {
			w.Go(fmt.Sprintf("caller %d", i), func(ctx context.Context) { x.use(ctx, i) })
		}
		w.Go("operator", func(context.Context) {
			w.Yield()
			p.Reset()
			w.Yield()
			p.Resize(1)
			w.Yield()
			p.Resize(size)
		})
	}, sematest.Slow(time.Millisecond))
}

// TestPool_CloseExplored closes a pool at any step.
func TestPool_CloseExplored(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		x := &explored{World: w, users: map[*conn]string{}}
		p := pool.New(pool.Config[*conn]{Size: 2, Open: x.open, Close: x.close, Check: x.check, MaxOpening: 1})
		x.pool = p
		for i := range 3 {
			w.Go(fmt.Sprintf("caller %d", i), func(ctx context.Context) { x.use(ctx, i) })
		}
		w.Go("operator", func(ctx context.Context) {
			for range 3 {
				w.Yield()
			}
			p.Close()
			if err := p.Drain(ctx); err != nil {
				w.Errorf("drain: %v", err)
			}
		})
		w.Finally("all conns are closed", func() bool { return x.alive == 0 && p.Stats().Open == 0 })
	}, sematest.Slow(time.Millisecond))
}

// explored is a server whose operations are steps. One goroutine runs at a time.
type explored struct {
	*sematest.World
	pool          *pool.Pool[*conn]
	opened, alive int
	users         map[*conn]string
}

func (x *explored) open(context.Context) (*conn, error) {
	x.alive++
	opened := false
	defer func() {
		if !opened {
			x.alive-- // failed, or the schedule is over
		}
	}()
	x.Yield()
	x.opened++
	if x.opened%5 == 3 {
		return nil, errDown
	}
	opened = true
	return &conn{id: x.opened, broken: x.opened%4 == 0}, nil
}

var errDown = errors.New("down")

func (x *explored) check(_ context.Context, c *conn) error {
	x.Yield()
	if c.broken {
		return errDown
	}
	return nil
}

func (x *explored) close(c *conn) {
	x.Yield()
	if c.closed || x.users[c] != "" {
		x.Errorf("conn %d is closed twice, or while %q uses it", c.id, x.users[c])
	}
	c.closed = true
	x.alive--
}

// use gets an item three times, and ends its use in different ways.
func (x *explored) use(ctx context.Context, i int) {
	for round := range 3 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+i)*time.Millisecond)
		item, err := x.pool.Get(limited)
		cancel()
		if err != nil {
			if !errors.Is(err, errDown) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sema.ErrClosed) && !errors.Is(err, context.Canceled) {
				x.Errorf("Get: %v", err)
			}
			continue
		}
		v := item.Value()
		if other := x.users[v]; other != "" || v.closed {
			x.Errorf("conn %d is used by %s, closed %v, and lent to %d", v.id, other, v.closed, i)
		}
		x.users[v] = fmt.Sprintf("caller %d", i)
		x.Yield()
		delete(x.users, v)
		switch (i + round) % 4 {
		case 0, 1:
			item.Release()
		case 2:
			item.Discard()
		case 3:
			kept, permit := item.Keep()
			x.close(kept)
			permit.Release()
		}
		item.Release()
		item.Discard()
	}
}
