package classic_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
)

func putting[T any](ctx context.Context, b *classic.Buffer[T], v T) *call[struct{}] {
	return start(func() (struct{}, error) { return struct{}{}, b.Put(ctx, v) })
}

func taking[T any](ctx context.Context, b *classic.Buffer[T]) *call[T] {
	return start(func() (T, error) { return b.Take(ctx) })
}

// filled returns a full buffer of the items 0, 1, ….

func filled(t testing.TB, capacity int, opts ...sema.SharedOption) *classic.Buffer[int] {
	t.Helper()
	b := classic.NewBuffer[int](capacity, opts...)
	for i := range capacity {
		if !b.TryPut(i) {
			t.Fatalf("no room for item %d of %d", i, capacity)
		}
	}
	if b.TryPut(capacity) {
		t.Fatalf("more than %d items", capacity)
	}
	return b
}

func TestBuffer_IsFIFO(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{1, 2, 3, 5, 8} { // powers of two or not
		b := filled(t, capacity)
		for i := range 100 {
			v, err := b.Take(t.Context())
			wantErr(t, err, nil)
			if v != i {
				t.Fatalf("capacity %d: item %d, want %d", capacity, v, i)
			}
			wantErr(t, b.Put(t.Context(), capacity+i), nil)
		}
		if b.Len() != capacity || b.Cap() != capacity {
			t.Errorf("%d of %d items", b.Len(), b.Cap())
		}
	}
}

func TestBuffer_ProducersWaitWhileItIsFullInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := filled(t, 1)
		var puts []*call[struct{}]
		for i := range 3 {
			puts = append(puts, putting(t.Context(), b, 1+i))
		}
		for i := range 3 {
			puts[i].wantWaiting(t)
			if v, ok := b.TryTake(); !ok || v != i {
				t.Fatalf("item %d, want %d", v, i)
			}
			puts[i].want(t)
			if b.TryPut(99) {
				t.Fatal("a try overtook producers, or the buffer has two items")
			}
		}
	})
}

func TestBuffer_ConsumersWaitWhileItIsEmptyInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := classic.NewBuffer[int](3)
		var takes []*call[int]
		for range 3 {
			takes = append(takes, taking(t.Context(), b))
		}
		for i, c := range takes {
			c.wantWaiting(t)
			if _, ok := b.TryTake(); ok {
				t.Fatal("an item of an empty buffer")
			}
			wantErr(t, b.Put(t.Context(), i), nil)
			if v := c.want(t); v != i {
				t.Fatalf("consumer %d got item %d", i, v)
			}
		}
	})
}

func TestBuffer_BatchesStayTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := classic.NewBuffer[int](3)
		batch := start(func() (int, error) { return b.PutAll(t.Context(), []int{0, 1, 2, 3, 4, 5, 6}) })
		batch.wantWaiting(t)
		single := putting(t.Context(), b, 7)
		var got []int
		into := make([]int, 2)
		for len(got) < 8 {
			n, err := b.TakeUpTo(t.Context(), into)
			wantErr(t, err, nil)
			got = append(got, into[:n]...)
			synctest.Wait()
		}
		if want := []int{0, 1, 2, 3, 4, 5, 6, 7}; !slices.Equal(got, want) {
			t.Errorf("items %v, want %v", got, want)
		}
		if n := batch.want(t); n != 7 {
			t.Errorf("%d items added, want 7", n)
		}
		single.want(t)
	})
}

func TestBuffer_TakeUpToWaitsForOneItem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := classic.NewBuffer[int](4)
		into := make([]int, 8)
		c := start(func() (int, error) { return b.TakeUpTo(t.Context(), into) })
		c.wantWaiting(t)
		n, err := b.PutAll(t.Context(), []int{1, 2, 3})
		if n != 3 || err != nil {
			t.Fatal(n, err)
		}
		if n := c.want(t); !slices.Equal(into[:n], []int{1, 2, 3}) {
			t.Errorf("items %v", into[:n])
		}
		for _, empty := range [][]int{nil, {}} {
			if n, err := b.TakeUpTo(t.Context(), empty); n != 0 || err != nil {
				t.Errorf("no room for items: %d, %v", n, err)
			}
			if n, err := b.PutAll(t.Context(), empty); n != 0 || err != nil {
				t.Errorf("no items: %d, %v", n, err)
			}
		}
	})
}

// TestBuffer_PartOfABatchIsCounted ends a PutAll in the middle: the first items are in the

// buffer, the others are not, and the count is theirs.

func TestBuffer_PartOfABatchIsCounted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []sema.SharedOption
		end  func(b *classic.Buffer[int], cancel context.CancelCauseFunc)
		want error
	}{
		"cancelled": {nil, func(_ *classic.Buffer[int], cancel context.CancelCauseFunc) { cancel(errCause) }, errCause},
		"timed out": {[]sema.SharedOption{sema.MaxWait(time.Second)}, func(*classic.Buffer[int], context.CancelCauseFunc) { time.Sleep(2 * time.Second) }, sema.ErrTimeout},
		"closed":    {nil, func(b *classic.Buffer[int], _ context.CancelCauseFunc) { b.Close() }, sema.ErrClosed},
		"no waiter": {[]sema.SharedOption{sema.MaxWaiters(0)}, func(*classic.Buffer[int], context.CancelCauseFunc) {}, sema.ErrQueueFull},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := classic.NewBuffer[int](3, c.opts...)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			batch := start(func() (int, error) { return b.PutAll(ctx, []int{0, 1, 2, 3, 4}) })
			c.end(b, cancel)
			batch.wantErr(t, c.want)
			if batch.value != 3 {
				t.Errorf("%s: %d items added, want 3", name, batch.value)
			}
			for i := range 3 {
				if v, ok := b.TryTake(); !ok || v != i {
					t.Errorf("%s: item %d, %v, want %d", name, v, ok, i)
				}
			}
			if v, ok := b.TryTake(); ok {
				t.Errorf("%s: item %d was added by a call that failed", name, v)
			}
		})
	}
}

func TestBuffer_ReportsEventsByClass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		b := classic.NewBuffer[int](1, sema.Name("jobs"), sema.Observe(&j))
		consumer := taking(t.Context(), b)
		j.want(t, "take queued") // an idle consumer is no exhaustion
		b.Put(t.Context(), 1)
		consumer.want(t)
		got := j.take()
		slices.Sort(got)
		if want := []string{"put acquired", "take acquired"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		b.Put(t.Context(), 2)
		j.want(t, "put acquired")
		ctx, cancel := context.WithCancel(t.Context())
		producer := putting(ctx, b, 3)
		j.want(t, "put queued", "put exhausted")
		cancel()
		producer.wantErr(t, context.Canceled)
		j.want(t, "put cancelled")
		b.TryPut(4)
		j.want(t, "put rejected")
		b.TryTake()
		j.want(t, "take acquired")
		b.TryTake()
		j.want(t, "take rejected")
		b.Close()
		b.Put(t.Context(), 5)
		j.want(t, " closed", "put rejected", "put recovered")
		for _, e := range j.find(sema.EventClosed) {
			if e.Name != "jobs" {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestBuffer_WaitsAreInTheDiagnostics: a wait is counted at its call site, and raises no

// alarm of a deadlock.

func TestBuffer_WaitsAreInTheDiagnostics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		b := classic.NewBuffer[int](1, sema.Name("diagnosed"), sema.Observe(&j), sema.Diagnose(sema.DiagnoseFull))
		consumer := taking(t.Context(), b)
		time.Sleep(time.Minute)
		b.Put(t.Context(), 1)
		consumer.want(t)
		e := j.find(sema.EventAcquired)
		if len(e) != 2 || e[0].Wait != time.Minute && e[1].Wait != time.Minute {
			t.Errorf("%+v", e)
		}
		if found := slices.Concat(j.find(sema.EventDeadlocked), j.find(sema.EventInverted)); len(found) != 0 {
			t.Errorf("false alarms: %+v", found)
		}
		if !slices.ContainsFunc(sema.Contention(), func(s sema.SiteWait) bool { return s.Total >= time.Minute }) {
			t.Error("no site with the wait")
		}
	})
}

// TestBuffer_WaitersDoNotCrossABubble uses one buffer in two bubbles and outside: a channel or

// timer that crossed would be a fatal error.

func TestBuffer_MovesLargeItems(t *testing.T) {
	t.Parallel()
	type large [1 << 16]byte
	b := classic.NewBuffer[large](3)
	var item large
	item[len(item)-1] = 7
	for range 5 {
		wantErr(t, b.Put(t.Context(), item), nil)
		v, err := b.Take(t.Context())
		if v != item || err != nil {
			t.Fatal("a large item changed", err)
		}
	}
}

// TestBuffer_ForgetsItemsThatLeft checks that items can be collected once they were taken,

// with a wait or without.

func TestBuffer_ForgetsItemsThatLeft(t *testing.T) {
	b := classic.NewBuffer[*[64]byte](4)
	for name, take := range map[string]func() *[64]byte{
		"Take": func() *[64]byte {
			v, err := b.Take(t.Context())
			wantErr(t, err, nil)
			return v
		},
		"TakeUpTo": func() *[64]byte {
			var into [2]*[64]byte
			n, err := b.TakeUpTo(t.Context(), into[:])
			if n != 1 || err != nil {
				t.Fatal(n, err)
			}
			return into[0]
		},
		"a Take that waits": func() *[64]byte {
			v, err := b.Take(t.Context())
			wantErr(t, err, nil)
			done := make(chan *[64]byte)
			go func() {
				got, _ := b.Take(context.Background())
				done <- got
			}()
			for b.Stats().Takes.Waiters == 0 {
				runtime.Gosched()
			}
			wantErr(t, b.Put(t.Context(), v), nil)
			return <-done
		},
	} {
		item := weak.Make(func() *[64]byte {
			v := new([64]byte)
			wantErr(t, b.Put(t.Context(), v), nil)
			if take() != v {
				t.Errorf("%s returned another item", name)
			}
			return v
		}())
		runtime.GC()
		if item.Value() != nil {
			t.Errorf("%s: the buffer keeps an item that was taken", name)
		}
	}
	runtime.KeepAlive(b)
}

func TestNewBuffer_PanicsWithoutCapacity(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{0, -1} {
		func() {
			defer func() {
				if r := recover(); r != fmt.Sprintf("classic: NewBuffer(%d): want a positive capacity", capacity) {
					t.Errorf("panic %v", r)
				}
			}()
			classic.NewBuffer[int](capacity)
		}()
	}
}
