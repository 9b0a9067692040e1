package sema_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

// A lockedBuffer may be written by the goroutine of a timer.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// take returns the text written since the last take.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.buf.Reset()
	return b.buf.String()
}

func TestLogTo_WarnsAtALimitedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		s := sema.New(1, sema.Name("db"), sema.Observe(sema.LogTo(logger)), sema.WarnHold(time.Minute))
		for range 1000 {
			mustAcquire(t, s, 1).Release()
		}
		if text := out.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=WARN msg="sema: exhausted" semaphore=db`) {
			t.Errorf("for a thousand acquires, want one line:\n%s", text)
		}
		time.Sleep(time.Minute)
		if text := out.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `level=INFO msg="sema: recovered" semaphore=db skipped=1998`) {
			t.Errorf("afterwards, want the latest state:\n%s", text)
		}
		held := mustAcquire(t, s, 1)
		held.Release()
		held = mustAcquire(t, s, 1) // held from here on
		time.Sleep(time.Minute - time.Second)
		if text := out.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "exhausted") {
			t.Errorf("the last line must be that it is exhausted:\n%s", text)
		}
		time.Sleep(2 * time.Minute)
		if text := out.take(); !strings.Contains(text, `msg="sema: overheld" semaphore=db weight=1 hold=1m0s site=`) ||
			!strings.Contains(text, "TestLogTo_WarnsAtALimitedRate") {
			t.Errorf("%s", text)
		}
		held.Release()
		time.Sleep(time.Minute)
		if text := out.take(); !strings.Contains(text, "recovered") {
			t.Errorf("%s", text)
		}
	})
}

func TestLogTo_LogsAMismatchEachTime(t *testing.T) {
	var out lockedBuffer
	o := sema.LogTo(slog.New(slog.NewTextHandler(&out, nil)))
	for range 2 {
		o.Observe(sema.Event{Kind: sema.EventMismatched, Name: "db", Report: "the stored configuration applies"})
	}
	if text := out.take(); strings.Count(text, `msg="sema: configuration mismatched" semaphore=db report="the stored configuration applies"`) != 2 {
		t.Errorf("%s", text)
	}
}
