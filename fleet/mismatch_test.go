package fleet_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
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
