package hints

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// listen has somebody listen until stop, which returns why that ended.
func listen(h *Hub, instance string, hint func(name string)) (stop func(cause error) error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Listen(ctx, instance, hint) }()
	return func(cause error) error {
		cancel(cause)
		return <-ended
	}
}

func await(ctx context.Context) { <-ctx.Done() }

func ignore(string) {}

func TestOneHearsWhileSomebodyListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun, hearing atomic.Int64
		h := NewHub(func(ctx context.Context) {
			begun.Add(1)
			if hearing.Add(1) > 1 {
				t.Error("two hear at a time")
			}
			<-ctx.Done()
			time.Sleep(time.Second) // which it takes to hang up
			hearing.Add(-1)
		})
		want := func(times int64, now bool) {
			t.Helper()
			synctest.Wait()
			if begun.Load() != times || (hearing.Load() > 0) != now {
				t.Errorf("begun %d times, and %d go on; want %d, %v", begun.Load(), hearing.Load(), times, now)
			}
		}
		want(0, false)
		a := listen(h, "a", ignore)
		b := listen(h, "b", ignore)
		want(1, true)
		cause := errors.New("enough")
		if err := a(cause); !errors.Is(err, cause) {
			t.Errorf("ended with %v", err)
		}
		want(1, true)
		b(nil)
		c := listen(h, "c", ignore) // before the one who hears has ended
		want(1, true)
		time.Sleep(2 * time.Second)
		want(2, true)
		h.Close()
		want(2, false)
		d := listen(h, "d", ignore)
		want(2, false)
		c(nil)
		d(nil)
		h.Close()
	})
}

func TestWhoIsSlowIsInNobodysWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(await)
		var slow, quick, other []string
		stuck := make(chan struct{})
		stops := []func(error) error{
			listen(h, "a", func(name string) {
				slow = append(slow, name)
				<-stuck
			}),
			listen(h, "a", func(name string) { quick = append(quick, name) }),
			listen(h, "b", func(name string) { other = append(other, name) }),
		}
		synctest.Wait()
		for i := range 100 {
			h.Tell("a", fmt.Sprint(i%3))
			h.Tell("nobody", "x")
			synctest.Wait()
		}
		if len(quick) != 100 || len(other) != 0 || len(slow) != 1 {
			t.Errorf("told %d, %d and %d times, want 100, 0 and 1", len(quick), len(other), len(slow))
		}
		close(stuck)
		synctest.Wait()
		slices.Sort(slow[1:])
		if want := []string{"0", "0", "1", "2"}; !slices.Equal(slow, want) {
			t.Errorf("the slow one is told of %v, want %v", slow, want)
		}
		for _, stop := range stops {
			stop(nil)
		}
		h.Close()
	})
}

// TestWhoIsTooLateIsToldNothing: who leaves in the middle of news hears no more.
func TestWhoIsTooLateIsToldNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(await)
		told, stuck := 0, make(chan struct{})
		stop := listen(h, "a", func(string) {
			told++
			<-stuck
		})
		synctest.Wait()
		h.Tell("a", "x")
		synctest.Wait()
		for _, name := range []string{"y", "z"} {
			h.Tell("a", name)
		}
		time.AfterFunc(time.Second, func() { close(stuck) })
		stop(nil)
		if told != 1 {
			t.Errorf("told %d times, want once", told)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Listen(ended, "a", ignore); !errors.Is(err, context.Canceled) {
			t.Errorf("to listen for no time at all ends with %v", err)
		}
		h.Close()
	})
}

func TestChangesAreWhoCameAndWhoHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(await)
		want := func(joined, left []string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-h.Changed():
			default:
				t.Error("no sign of changes")
			}
			came, gone := h.Changes()
			slices.Sort(came)
			slices.Sort(gone)
			if !slices.Equal(came, joined) || !slices.Equal(gone, left) {
				t.Errorf("%v came and %v have gone, want %v, %v", came, gone, joined, left)
			}
		}
		a, b := listen(h, "a", ignore), listen(h, "b", ignore)
		want([]string{"a", "b"}, nil)
		again := listen(h, "a", ignore)
		want([]string{"a"}, nil)
		a(nil)
		c := listen(h, "c", ignore)
		b(nil)
		want([]string{"c"}, []string{"b"})
		if all := h.All(); len(all) != 2 {
			t.Errorf("%v listen, want a and c", all)
		}
		again(nil)
		c(nil)
		want(nil, []string{"a", "c"})
		h.Close()
	})
}

// TestManyComeAndGo has whoever hears know of all who listen, in the end.
func TestManyComeAndGo(t *testing.T) {
	t.Parallel()
	var hearing atomic.Int64
	var h *Hub
	h = NewHub(func(ctx context.Context) {
		if hearing.Add(1) > 1 {
			t.Error("two hear at a time")
		}
		defer hearing.Add(-1)
		h.Changes()
		known := map[string]bool{}
		joined, left := h.All(), []string{}
		for {
			for _, instance := range left {
				delete(known, instance)
			}
			for _, instance := range joined {
				known[instance] = true
			}
			for instance := range known {
				h.Tell(instance, "x")
			}
			select {
			case <-ctx.Done():
				return
			case <-h.Changed():
				joined, left = h.Changes()
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 300 {
				told := make(chan struct{}, 1)
				stop := listen(h, fmt.Sprint((i+n)%5), func(string) { signal(told) })
				if rand.N(2) == 0 {
					<-told
				}
				stop(nil)
			}
		})
	}
	wg.Wait()
	h.Close()
	if n := hearing.Load(); n != 0 || len(h.inboxes) > 0 {
		t.Errorf("%d hear still, for %d", n, len(h.inboxes))
	}
}
