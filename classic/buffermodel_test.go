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

// The model of a buffer is a slice of items and two queues of calls. After each operation it
// serves consumers while there are items, and producers while there is room.

// A bufferCall is a PutAll or a TakeUpTo in the model.
type bufferCall struct {
	*call[int]
	cancel context.CancelFunc
	items  []int // still to be added
	into   []int // of a TakeUpTo
	count  int   // items added or removed, as the model has it
	got    []int // what a TakeUpTo removed in the model
}

type bufferModel struct {
	capacity int
	items    []int
	puts     []*bufferCall
	takes    []*bufferCall
	ended    []*bufferCall
	next     int // the next item
	closed   bool
}

// settle serves the queues.
func (m *bufferModel) settle() {
	for {
		switch {
		case len(m.takes) > 0 && len(m.items) > 0:
			c := m.takes[0]
			n := min(len(c.into), len(m.items))
			c.got, m.items = slices.Clone(m.items[:n]), m.items[n:]
			m.takes, m.ended = m.takes[1:], append(m.ended, c)
		case len(m.puts) > 0 && len(m.items) < m.capacity:
			c := m.puts[0]
			n := min(len(c.items), m.capacity-len(m.items))
			m.items, c.items = append(m.items, c.items[:n]...), c.items[n:]
			c.count += n
			if len(c.items) == 0 {
				m.puts, m.ended = m.puts[1:], append(m.ended, c)
			}
		default:
			return
		}
	}
}

func TestBuffer_BehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { runBufferModel(rt) })
	})
}

func runBufferModel(rt *rapid.T) {
	m := &bufferModel{capacity: rapid.IntRange(1, 5).Draw(rt, "capacity")}
	var opts []sema.SharedOption
	if rapid.Bool().Draw(rt, "observed") {
		opts = append(opts, sema.Observe(&journal{}))
	}
	b := classic.NewBuffer[int](m.capacity, opts...)
	defer func() {
		for _, c := range slices.Concat(m.puts, m.takes) {
			c.cancel()
		}
	}()
	add := func(queue *[]*bufferCall, c *bufferCall, fn func(ctx context.Context) (int, error)) {
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel = cancel
		c.call = start(func() (int, error) { return fn(ctx) })
		if m.closed && (queue == &m.puts || len(m.items) == 0) {
			c.wantErr(rt, sema.ErrClosed)
			return
		}
		*queue = append(*queue, c)
	}
	cancelOne := func(queue *[]*bufferCall) {
		if len(*queue) == 0 {
			return
		}
		i := rapid.IntRange(0, len(*queue)-1).Draw(rt, "call")
		c := (*queue)[i]
		*queue = slices.Delete(*queue, i, i+1)
		c.cancel()
		c.wantErr(rt, context.Canceled)
		if c.value != c.count {
			rt.Fatalf("%d items moved by a cancelled call, want %d", c.value, c.count)
		}
	}
	// check compares the buffer and the model.
	check := func() {
		m.settle()
		synctest.Wait()
		for _, c := range m.ended {
			if n := c.want(rt); c.into != nil && !slices.Equal(c.into[:n], c.got) {
				rt.Fatalf("took %v, want %v", c.into[:n], c.got)
			} else if c.into == nil && n != c.count {
				rt.Fatalf("added %d items, want %d", n, c.count)
			}
			c.cancel()
		}
		m.ended = nil
		for _, c := range slices.Concat(m.puts, m.takes) {
			c.wantWaiting(rt)
		}
		st := b.Stats()
		if st.Puts.Free+st.Takes.Free != int64(m.capacity) || st.Takes.Free != int64(len(m.items)) || st.Puts.Waiters != len(m.puts) || st.Takes.Waiters != len(m.takes) {
			rt.Fatalf("%+v, want items %v, %d producers, %d consumers", st, m.items, len(m.puts), len(m.takes))
		}
	}
	rt.Repeat(map[string]func(*rapid.T){
		"put": func(rt *rapid.T) {
			v := m.next
			m.next++
			add(&m.puts, &bufferCall{items: []int{v}}, func(ctx context.Context) (int, error) {
				err := b.Put(ctx, v)
				if err != nil {
					return 0, err
				}
				return 1, nil
			})
		},
		"put all": func(rt *rapid.T) {
			items := make([]int, rapid.IntRange(1, 8).Draw(rt, "items"))
			for i := range items {
				items[i] = m.next
				m.next++
			}
			add(&m.puts, &bufferCall{items: items}, func(ctx context.Context) (int, error) { return b.PutAll(ctx, items) })
		},
		"take": func(*rapid.T) {
			into := make([]int, 1)
			add(&m.takes, &bufferCall{into: into}, func(ctx context.Context) (int, error) {
				v, err := b.Take(ctx)
				if err != nil {
					return 0, err
				}
				into[0] = v
				return 1, nil
			})
		},
		"take up to": func(rt *rapid.T) {
			into := make([]int, rapid.IntRange(1, 4).Draw(rt, "room"))
			add(&m.takes, &bufferCall{into: into}, func(ctx context.Context) (int, error) { return b.TakeUpTo(ctx, into) })
		},
		"try put": func(rt *rapid.T) {
			if want := !m.closed && len(m.items) < m.capacity; b.TryPut(m.next) != want {
				rt.Fatalf("TryPut with items %v, want %v", m.items, want)
			} else if want {
				m.items = append(m.items, m.next)
				m.next++
			}
		},
		"try take": func(rt *rapid.T) {
			v, ok := b.TryTake()
			if ok != (len(m.items) > 0) || ok && v != m.items[0] {
				rt.Fatalf("TryTake: %d, %v, want the first of %v", v, ok, m.items)
			}
			if ok {
				m.items = m.items[1:]
			}
		},
		"cancel a producer": func(*rapid.T) { cancelOne(&m.puts) },
		"cancel a consumer": func(*rapid.T) { cancelOne(&m.takes) },
		"close": func(rt *rapid.T) {
			if rapid.IntRange(0, 20).Draw(rt, "close") > 0 {
				return
			}
			b.Close()
			m.closed = true
			for _, c := range slices.Concat(m.puts, m.takes) {
				c.wantErr(rt, sema.ErrClosed)
				if c.value != c.count {
					rt.Fatalf("%d items moved, want %d", c.value, c.count)
				}
			}
			m.puts, m.takes = nil, nil
		},
		"": func(*rapid.T) { check() },
	})
}
