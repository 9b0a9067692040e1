package wfq

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"

	"github.com/sema-go/sema"
)

// queueOne starts a caller that waits, and returns what it gets.
func queueOne(t *testing.T, c *Class, n int64) <-chan sema.Permit {
	t.Helper()
	got := make(chan sema.Permit, 1)
	go func() {
		p, err := c.Acquire(context.Background(), n)
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	synctest.Wait()
	if c.Stats().Waiters != 1 {
		t.Fatalf("%+v: want a waiter", c.Stats())
	}
	return got
}

// wantServed wants that the waiter is served, and everything free after held is released.
func wantServed(t *testing.T, q *Queue, got <-chan sema.Permit, held ...sema.Permit) {
	t.Helper()
	synctest.Wait()
	select {
	case p := <-got:
		p.Release()
	default:
		t.Error("the waiter is not served")
	}
	for _, p := range held {
		p.Release()
	}
	if err := q.CheckInvariants(); err != nil {
		t.Error(err)
	}
	if st := q.Stats(); st.InUse != 0 || st.Free != st.Capacity {
		t.Errorf("in the end: %+v", st)
	}
}

// TestQueue_Transitions checks what happens if the queue becomes slow between the two
// atomic operations of a caller that began while it was calm.
func TestQueue_Transitions(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, q *Queue){
		"a release": func(t *testing.T, q *Queue) {
			c := q.Class("a")
			if _, err := c.Acquire(context.Background(), 2); err != nil { //semavet:ignore takeBackFrom returns it
				t.Fatal(err)
			}
			before := q.word.Load()
			got := queueOne(t, c, 2)
			c.class.takeBackFrom(before, 2)
			wantServed(t, q, got)
		},
		"a release while the queue stays calm": func(t *testing.T, q *Queue) {
			c := q.Class("a")
			if _, err := c.Acquire(context.Background(), 1); err != nil { //semavet:ignore takeBackFrom returns it
				t.Fatal(err)
			}
			before := q.word.Load()
			other, err := q.Class("b").Acquire(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			c.class.takeBackFrom(before, 1)
			got := queueOne(t, c, 2)
			other.Release()
			wantServed(t, q, got)
		},
		"an acquire": func(t *testing.T, q *Queue) {
			c, before := q.Class("a"), q.word.Load()
			p, err := c.Acquire(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			got := queueOne(t, c, 2)
			if c.class.takeFrom(before, 1) {
				t.Error("a caller took permits without the mutex while others wait")
			}
			p.Release()
			wantServed(t, q, got)
		},
		"an acquire while the queue stays calm": func(t *testing.T, q *Queue) {
			c, before := q.Class("a"), q.word.Load()
			p, err := c.Acquire(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			if !c.class.takeFrom(before, 1) {
				t.Error("a free permit was not taken")
			}
			if c.class.takeFrom(before, 1) {
				t.Error("a permit was taken that is not free")
			}
			got := queueOne(t, c, 2)
			p.Release()
			(*classOwner)(c.class).TakeBack(1)
			wantServed(t, q, got)
		},
		"an acquire of more than can be counted": func(t *testing.T, q *Queue) {
			c := q.Class("a")
			p, err := c.Acquire(context.Background(), 2)
			if err != nil {
				t.Fatal(err)
			}
			got := queueOne(t, c, 1)
			for _, n := range []int64{math.MaxInt64, math.MaxInt64 - 1, 1 << 62, sema.MaxCapacity, sema.MaxCapacity + 1} {
				if _, err := c.Acquire(context.Background(), n); !errors.Is(err, sema.ErrTooLarge) { //semavet:ignore wants an error
					t.Errorf("acquire %d: %v", n, err)
				}
			}
			p.Release()
			wantServed(t, q, got)
		},
		"a try that makes a class seem to be at its limit": func(t *testing.T, q *Queue) {
			q.Set("a", Share{Max: 2})
			c := q.Class("a")
			p, err := q.Class("b").Acquire(context.Background(), 1)
			if err != nil {
				t.Fatal(err)
			}
			c.class.inUse.Add(2) // the first step of takeFrom
			got := queueOne(t, c, 1)
			c.class.untake(2) // it fails
			wantServed(t, q, got, p)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { test(t, New(2)) })
		})
	}
}
