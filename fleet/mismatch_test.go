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

// TestSemaphore_LogsAMismatchOnce replaces the default logger, so that it cannot run
// in parallel.
func TestSemaphore_LogsAMismatchOnce(t *testing.T) {
	for what, c := range map[string]struct {
		asked  fleet.Options
		logged int
	}{
		"another capacity":  {fleet.Options{Capacity: 4}, 1},
		"another TTL":       {fleet.Options{Capacity: 3, TTL: 7 * time.Second}, 1},
		"the same":          {fleet.Options{Capacity: 3}, 0},
		"with an observer":  {fleet.Options{Capacity: 4, Observer: sema.ObserverFunc(func(sema.Event) {})}, 0},
		"pooled, and other": {fleet.Options{Capacity: 4, Mode: fleet.Pooled}, 1},
	} {
		t.Run(what, func(t *testing.T) {
			var log bytes.Buffer
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			defer slog.SetDefault(before)
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				first, _ := join(t, store)
				mustAcquire(t, semaphore(t, first, fleet.Options{Capacity: 3}), 1).Release()
				other, _ := join(t, store)
				s := semaphore(t, other, c.asked)
				for range 3 { // a session each
					mustAcquire(t, s, 1).Release()
					time.Sleep(time.Hour)
				}
				synctest.Wait()
			})
			text := log.String()
			if n := strings.Count(text, "was made with other options"); n != c.logged {
				t.Errorf("it was logged %d times, want %d: %s", n, c.logged, text)
			}
			if c.logged > 0 && (!strings.Contains(text, "level=WARN") || !strings.Contains(text, "capacity 3, TTL 15s")) {
				t.Errorf("%s", text)
			}
		})
	}
}

// TestSemaphore_LogsEachKindOfMismatch: another capacity does not hide another mode. It
// replaces the default logger, so that it cannot run in parallel.
func TestSemaphore_LogsEachKindOfMismatch(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New()
		first, _ := join(t, store)
		silent := sema.ObserverFunc(func(sema.Event) {}) // so that only the other one logs
		held := mustAcquire(t, semaphore(t, first, fleet.Options{Capacity: 3, Observer: silent}), 1)
		other, _ := join(t, store)
		s := semaphore(t, other, fleet.Options{Capacity: 4, Mode: fleet.Pooled})
		for range 3 {
			mustAcquire(t, s, 1).Release()
			time.Sleep(time.Hour)
		}
		held.Release()
		synctest.Wait()
	})
	for _, text := range []string{"was made with other options", "use one mode"} {
		if n := strings.Count(log.String(), text); n != 1 {
			t.Errorf("%q was logged %d times, want once: %s", text, n, log.String())
		}
	}
}
