package wfq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

func TestShare_BoundsWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1, sema.Name("db"))
		q.Set("two", wfq.Share{MaxWaiters: 2})
		q.Set("none", wfq.Share{MaxWaiters: sema.NoWaiters})
		p := mustAcquire(t, q, 1)
		var l log
		l.start(t, q.Class("two"), "1", 1, 0)
		l.start(t, q.Class("two"), "2", 1, 0)
		for _, name := range []string{"two", "none"} {
			_, err := q.Class(name).Acquire(ctx, 1) //semavet:ignore wants an error
			if !errors.Is(err, sema.ErrQueueFull) || !strings.Contains(err.Error(), fmt.Sprintf(`"db": acquire 1 of 1 permits: queue full: class %q`, name)) {
				t.Errorf("class %s: %v, want ErrQueueFull", name, err)
			}
		}
		p.Release()
		l.want(t, "1", "2")
		// A bound on waiters does not reject callers that need not wait.
		mustAcquire(t, q.Class("none"), 1).Release()
	})
}

func TestQueue_DisplacesWaitersWhenFull(t *testing.T) {
	t.Parallel()
	t.Run("of a lower tier", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := wfq.New(1, sema.MaxWaiters(3))
			q.Set("high", wfq.Share{Tier: 1})
			p := mustAcquire(t, q, 1)
			var l log
			l.start(t, q.Class("low"), "low 1", 1, 0)
			l.start(t, q.Class("low"), "low 2", 1, 0)
			l.start(t, q.Class("high"), "high 1", 1, 0)
			l.start(t, q.Class("high"), "high 2", 1, 0) // displaces low 2
			l.start(t, q.Class("low"), "low 3", 1, 0)   // is rejected
			l.start(t, q.Class("high"), "high 3", 1, 0) // displaces low 1
			l.start(t, q.Class("high"), "high 4", 1, 0) // is rejected
			p.Release()
			l.want(t, "low 2: queue-full", "low 3: queue-full", "low 1: queue-full", "high 4: queue-full", "high 1", "high 2", "high 3")
		})
	})
	t.Run("of the longest queue", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			q := wfq.New(1, sema.MaxWaiters(8))
			p := mustAcquire(t, q, 1)
			var l log
			for i := range 8 {
				l.start(t, q.Class("hog"), fmt.Sprint("hog ", i), 1, 0)
			}
			for i := range 5 {
				l.start(t, q.Class("tenant"), fmt.Sprint("tenant ", i), 1, 0)
			}
			p.Release()
			time.Sleep(time.Hour)
			l.mu.Lock()
			defer l.mu.Unlock()
			served := map[string]int{}
			for _, name := range l.served {
				served[name[:3]+name[strings.LastIndex(name, " "):]]++
				if strings.HasPrefix(name, "tenant") && strings.HasSuffix(name, "queue-full") {
					served["tenants rejected"]++
				}
			}
			if st := q.Class("hog").Stats(); st.Rejected < 2 || st.Rejected > 6 || served["tenants rejected"] > 3 {
				t.Errorf("served %v", l.served)
			}
		})
	})
}

// TestQueue_ReportsWhyAWaiterWasDisplaced checks the facts of its error.
func TestQueue_ReportsWhyAWaiterWasDisplaced(t *testing.T) {
	t.Parallel()
	for class, want := range map[string]string{"high": "displaced by a caller of a higher tier", "equal": "displaced by a caller of a class with fewer waiters"} {
		synctest.Test(t, func(t *testing.T) {
			q := wfq.New(1, sema.MaxWaiters(4))
			q.Set("high", wfq.Share{Tier: 1})
			p := mustAcquire(t, q, 1)
			errs := make(chan error, 5)
			start := func(class string) {
				go func() {
					p, err := q.Class(class).Acquire(ctx, 1)
					p.Release()
					errs <- err
				}()
				synctest.Wait()
			}
			for range 4 {
				start("hog")
			}
			start(class)
			if err := <-errs; !errors.Is(err, sema.ErrQueueFull) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			p.Release()
		})
	}
}

func TestShare_BoundsWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := wfq.New(1, sema.MaxWait(time.Minute))
		q.Set("short", wfq.Share{MaxWait: time.Second})
		q.Set("long", wfq.Share{MaxWait: time.Hour})
		defer mustAcquire(t, q, 1).Release()
		for name, want := range map[string]time.Duration{"short": time.Second, "long": time.Minute, "other": time.Minute} {
			start := time.Now()
			_, err := q.Class(name).Acquire(ctx, 1) //semavet:ignore wants an error
			if !errors.Is(err, sema.ErrTimeout) || time.Since(start) != want {
				t.Errorf("class %s: %v after %v, want ErrTimeout after %v", name, err, time.Since(start), want)
			}
		}
		if st := q.Stats(); st.TimedOut != 3 || st.WaitTime != 2*time.Minute+time.Second {
			t.Errorf("%+v", st.Counts)
		}
	})
}
