package fleet_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// TestSemaphore_LogsAMismatchOnce replaces the default logger, so it does not run in parallel.
func TestSemaphore_LogsAMismatchOnce(t *testing.T) {
	for what, c := range map[string]struct {
		asked  spec
		logged int
	}{
		"another capacity":         {of(4), 1},
		"another TTL":              {of(3, fleet.TTL(7*time.Second)), 1},
		"the same":                 {of(3), 0},
		"with an observer":         {of(4, sema.Observe(sema.ObserverFunc(func(sema.Event) {}))), 0},
		"pooled, another capacity": {of(4, fleet.ModePooled), 1},
	} {
		t.Run(what, func(t *testing.T) {
			var log bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(before)
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				first, _ := newClient(t, store)
				mustAcquire(t, semaphore(t, first, of(3)), 1).Release()
				other, _ := newClient(t, store)
				s := semaphore(t, other, c.asked)
				for range 3 { // one session each
					mustAcquire(t, s, 1).Release()
					time.Sleep(time.Hour)
				}
				synctest.Wait()
			})
			text := log.String()
			if n := strings.Count(text, "the stored configuration applies"); n != c.logged {
				t.Errorf("logged %d times, want %d: %s", n, c.logged, text)
			}
			if c.logged > 0 && (!strings.Contains(text, "level=WARN") || !strings.Contains(text, "is stored with") || !strings.Contains(text, "hint=")) {
				t.Errorf("%s", text)
			}
		})
	}
}

// TestSemaphore_LogsEachKindOfMismatch checks that another capacity does not hide another mode.
// It replaces the default logger, so it does not run in parallel.
func TestSemaphore_LogsEachKindOfMismatch(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		first, _ := newClient(t, store)
		discard := sema.ObserverFunc(func(sema.Event) {}) // only the other client logs
		held := mustAcquire(t, semaphore(t, first, of(3, sema.Observe(discard))), 1)
		other, _ := newClient(t, store)
		s := semaphore(t, other, of(4, fleet.ModePooled))
		for range 3 {
			mustAcquire(t, s, 1).Release()
			time.Sleep(time.Hour)
		}
		held.Release()
		synctest.Wait()
	})
	for _, text := range []string{"the stored configuration applies", "from block to block"} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("%q was logged %d times, want once: %s", text, n, log.String())
		}
	}
}

func TestSemaphore_ReportsMismatchesOfRequestedOptions(t *testing.T) {
	t.Parallel()
	reports := func(change func(*protocol.Config), o spec) (found []string) {
		synctest.Test(t, func(t *testing.T) {
			store := memstore.New()
			admin, _ := newClient(t, store)
			mustAcquire(t, semaphore(t, admin, of(3)), 1).Release()
			setStored(t, store, change)
			c, _ := newClient(t, store)
			var mu sync.Mutex
			observe := sema.Observe(sema.ObserverFunc(func(e sema.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == sema.EventMismatched {
					found = append(found, e.Report)
				}
			}))
			semaphore(t, c, o.with(observe)).TryAcquire(t.Context(), 1)
			synctest.Wait()
		})
		return found
	}
	same := of(3, fleet.TTL(15*time.Second))
	for what, change := range map[string]func(*protocol.Config){
		"a version":                func(c *protocol.Config) {},
		"a drain":                  func(c *protocol.Config) { c.Draining = true },
		"a share":                  func(c *protocol.Config) { c.Whole = 9 },
		"another protocol version": func(c *protocol.Config) { c.Protocol++ },
	} {
		if got := reports(change, same); len(got) != 0 {
			t.Errorf("%s: %q", what, got)
		}
	}
	for _, want := range []struct {
		text string
		o    spec
	}{
		{"capacity 3, not 4", of(4)},
		{"TTL 15s, not 7s", of(3, fleet.TTL(7*time.Second))},
		{"no rate, not a rate per 2s", of(3, fleet.Rate(2*time.Second))},
		{"ramp 0, not 5", of(3, fleet.Ramp(5))},
		{"no bound of waiters, not at most 6 waiters", of(3, sema.MaxWaiters(6))},
		{"capacity 3, not 4 and TTL 15s, not 7s", of(4, fleet.TTL(7*time.Second))},
	} {
		got := reports(func(*protocol.Config) {}, want.o)
		if len(got) != 1 || !strings.Contains(got[0], `semaphore "db" is stored with `+want.text+"; the stored configuration applies") {
			t.Errorf("%q, want %s", got, want.text)
		}
	}
}
