package group_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/registry"
)

func TestGroup_Stats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(4)
		g := group.New(t.Context(), gate, group.AllErrors)
		other, _ := gate.Acquire(t.Context(), 1) // of another user of the gate
		end := make(chan error)
		wait := func(context.Context) error { return <-end }

		g.GoN(3, wait)
		if g.TryGo(wait) {
			t.Fatal("TryGo without a free permit")
		}
		for range 2 {
			go g.Go(wait)
		}
		left, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := g.GoWithin(left, 2, wait); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if st := g.Stats(); st.Capacity != 4 || st.InUse != 3 || st.Free != 0 || st.Waiters != 2 || st.Running != 1 || st.Failed != 0 || st.Closed {
			t.Errorf("%+v", st)
		} else if want := (sema.Counts{Acquired: 1, Waited: 3, Cancelled: 1, Rejected: 1, WaitTime: 25 * time.Second}); st.Counts != want {
			t.Errorf("%+v, want %+v", st.Counts, want)
		}
		if text := g.String(); text != "group: 1 running, 2 waiting" {
			t.Errorf("%q", text)
		}

		end <- errors.New("failed")
		other.Release()
		synctest.Wait()
		if st := g.Stats(); st.InUse != 2 || st.Waiters != 0 || st.Running != 2 || st.Failed != 1 || st.Acquired != 3 {
			t.Errorf("%+v", st)
		}
		close(end)
		if err := g.Wait(); err == nil {
			t.Error("no error")
		}
		if st := g.Stats(); st.InUse != 0 || st.Free != 4 || st.Running != 0 || !st.Closed || st.Acquired != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// TestGroup_StatsWithoutABound checks a group without a gate, and one that reuses goroutines
// and permits for tiny functions.
func TestGroup_StatsWithoutABound(t *testing.T) {
	t.Parallel()
	for _, gate := range []sema.Gate{nil, sema.New(2)} {
		g := group.New(t.Context(), gate)
		for range 1000 {
			g.Go(func(context.Context) error { return nil })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		st := g.Stats()
		capacity := int64(2)
		if gate == nil {
			capacity = sema.MaxCapacity
		}
		if st.Capacity != capacity || st.Acquired != 1000 || st.InUse != 0 || st.Running != 0 || st.Waiters != 0 {
			t.Errorf("%+v", st)
		}
	}
}

func TestGroup_StatsCountPanics(t *testing.T) {
	t.Parallel()
	g := group.New(t.Context(), nil)
	g.Go(func(context.Context) error { panic("why") })
	func() {
		defer func() { recover() }()
		g.Wait()
	}()
	if st := g.Stats(); st.Failed != 1 || st.Running != 0 {
		t.Errorf("%+v", st)
	}
}

func TestGroup_CanBeRegistered(t *testing.T) {
	t.Parallel()
	r := registry.New()
	g := group.New(t.Context(), sema.New(7))
	defer g.Wait()
	r.Add("import", g, "why")
	if l, _ := r.Get("import"); l.Kind != "group.Group" || l.Stats.Capacity != 7 {
		t.Errorf("%+v", l)
	}
}
