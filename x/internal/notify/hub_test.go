package notify

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

// listen starts a listener. The function stop ends its context with the cause and
// returns the error of Listen.
func listen(h *Hub, instance string, notify func(name string)) (stop func(cause error) error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Listen(ctx, instance, notify) }()
	return func(cause error) error {
		cancel(cause)
		return <-ended
	}
}

func await(ctx context.Context) { <-ctx.Done() }

func ignore(string) {}

func TestHub_RunsOneReceiveLoopWhileThereAreListeners(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var started, running atomic.Int64
		h := NewHub(func(ctx context.Context) {
			started.Add(1)
			if running.Add(1) > 1 {
				t.Error("two receive loops run at a time")
			}
			<-ctx.Done()
			time.Sleep(time.Second) // to close the connection
			running.Add(-1)
		})
		want := func(times int64, now bool) {
			t.Helper()
			synctest.Wait()
			if started.Load() != times || (running.Load() > 0) != now {
				t.Errorf("%d loops started, %d running; want %d started, running %v", started.Load(), running.Load(), times, now)
			}
		}
		want(0, false)
		a := listen(h, "a", ignore)
		b := listen(h, "b", ignore)
		want(1, true)
		cause := errors.New("enough")
		if err := a(cause); !errors.Is(err, cause) {
			t.Errorf("Listen = %v, want the cause %v", err, cause)
		}
		want(1, true)
		b(nil)
		c := listen(h, "c", ignore) // before the first receive loop has returned
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

func TestHub_SlowListenerDoesNotBlockOthers(t *testing.T) {
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
			h.Notify("a", fmt.Sprint(i%3))
			h.Notify("absent", "x")
			synctest.Wait()
		}
		if len(quick) != 100 || len(other) != 0 || len(slow) != 1 {
			t.Errorf("%d, %d and %d notifications, want 100, 0 and 1", len(quick), len(other), len(slow))
		}
		close(stuck)
		synctest.Wait()
		slices.Sort(slow[1:])
		if want := []string{"0", "0", "1", "2"}; !slices.Equal(slow, want) {
			t.Errorf("the slow listener received %v, want %v", slow, want)
		}
		for _, stop := range stops {
			stop(nil)
		}
		h.Close()
	})
}

// TestHub_ListenerReceivesNothingAfterItsEnd ends a listener while names are pending.
func TestHub_ListenerReceivesNothingAfterItsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(await)
		notified, stuck := 0, make(chan struct{})
		stop := listen(h, "a", func(string) {
			notified++
			<-stuck
		})
		synctest.Wait()
		h.Notify("a", "x")
		synctest.Wait()
		for _, name := range []string{"y", "z"} {
			h.Notify("a", name)
		}
		time.AfterFunc(time.Second, func() { close(stuck) })
		stop(nil)
		if notified != 1 {
			t.Errorf("%d notifications, want 1", notified)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Listen(ended, "a", ignore); !errors.Is(err, context.Canceled) {
			t.Errorf("Listen with an ended context = %v, want context.Canceled", err)
		}
		h.Close()
	})
}

func TestHub_ChangesReportsJoinedAndLeftInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(await)
		want := func(joined, left []string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-h.Changed():
			default:
				t.Error("Changed has no value")
			}
			gotJoined, gotLeft := h.Changes()
			slices.Sort(gotJoined)
			slices.Sort(gotLeft)
			if !slices.Equal(gotJoined, joined) || !slices.Equal(gotLeft, left) {
				t.Errorf("Changes = %v, %v; want %v, %v", gotJoined, gotLeft, joined, left)
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
			t.Errorf("All = %v, want a and c", all)
		}
		again(nil)
		c(nil)
		want(nil, []string{"a", "c"})
		h.Close()
	})
}

// TestHub_ReceiveLoopKnowsAllListeners makes many listeners join and leave at once. A
// receive loop that follows Changes must know all of them in the end.
func TestHub_ReceiveLoopKnowsAllListeners(t *testing.T) {
	t.Parallel()
	var running atomic.Int64
	var h *Hub
	h = NewHub(func(ctx context.Context) {
		if running.Add(1) > 1 {
			t.Error("two receive loops run at a time")
		}
		defer running.Add(-1)
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
				h.Notify(instance, "x")
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
				notified := make(chan struct{}, 1)
				stop := listen(h, fmt.Sprint((i+n)%5), func(string) { signal(notified) })
				if rand.N(2) == 0 {
					<-notified
				}
				stop(nil)
			}
		})
	}
	wg.Wait()
	h.Close()
	if n := running.Load(); n != 0 || len(h.inboxes) > 0 {
		t.Errorf("%d receive loops still run, %d instances have listeners", n, len(h.inboxes))
	}
}
