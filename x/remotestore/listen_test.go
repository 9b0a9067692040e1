package remotestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
)

func elsewhere(http.Handler) http.Handler { return http.NotFoundHandler() }

// hinting is an engine whose hints a test gives.
type hinting struct {
	fleet.Store
	listeners atomic.Int64
	news      chan string
}

func newHinting() *hinting { return &hinting{Store: memstore.New(), news: make(chan string)} }

func (h *hinting) Listen(ctx context.Context, _ string, hint func(string)) error {
	h.listeners.Add(1)
	defer h.listeners.Add(-1)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case name := <-h.news:
			hint(name)
		}
	}
}

// wantHint fails unless the name is heard.
func wantHint(t *testing.T, heard <-chan string, name string) {
	t.Helper()
	for timeout := time.After(time.Minute); ; {
		select {
		case got := <-heard:
			if got == name {
				return
			}
		case <-timeout:
			t.Fatalf("no hint of %s", name)
		}
	}
}

// TestHintsGoOnAfterTheConnectionIsCut, and what was missed is hinted at.
func TestHintsGoOnAfterTheConnectionIsCut(t *testing.T) {
	t.Parallel()
	engine := newHinting()
	store, proxies := behind(t, engine, 2, serving{})
	for i := range 3 {
		open(t, store, fmt.Sprint("used-", i), protocol.Config{Capacity: 1})
	}
	heard := make(chan string, 1000)
	l := goListen(t, store, "me", func(name string) { heard <- name })
	for range 5 {
		engine.news <- "fresh"
		wantHint(t, heard, "fresh")
		for len(heard) > 0 {
			<-heard
		}
		for _, p := range proxies {
			p.Cut()
		}
		missed := map[string]bool{}
		for len(missed) < 3 {
			select {
			case name := <-heard:
				missed[name] = true
			case <-time.After(time.Minute):
				t.Fatalf("of what was missed only %v is hinted at", missed)
			}
		}
	}
	if err := l.stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	await(t, "nobody listens at the servers", func() bool { return engine.listeners.Load() == 0 })
}

// TestASilentStreamIsGivenUp: the server's heartbeat is missing, and so is the end
// of the connection.
func TestASilentStreamIsGivenUp(t *testing.T) {
	t.Parallel()
	engine := newHinting()
	store, proxies := behind(t, engine, 2, serving{heartbeat: 50 * time.Millisecond})
	open(t, store, "used", protocol.Config{Capacity: 1})
	heard := make(chan string, 1000)
	goListen(t, store, "me", func(name string) { heard <- name })
	engine.news <- "first"
	wantHint(t, heard, "first")
	began := time.Now()
	proxies[0].SetFault(enginetest.Fault{LoseReplies: true})
	wantHint(t, heard, "used")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v to find out", took)
	}
	if store.asks() != proxies[1].Address {
		t.Error("the silent server is still asked")
	}
}

// TestWhoListensIsAskedWhetherItIsThere: streams come to an end, and the next ones
// are begun without a pause.
func TestWhoListensIsAskedWhetherItIsThere(t *testing.T) {
	t.Parallel()
	engine := newHinting()
	server := serve(t, engine, serving{heartbeat: 10 * time.Millisecond, lifetime: 20 * time.Millisecond})
	store := openAt(t, server.address)
	open(t, store, "used", protocol.Config{Capacity: 1})
	var again atomic.Int64
	goListen(t, store, "me", func(string) { again.Add(1) })
	began := time.Now()
	await(t, "it has listened fifty times", func() bool { return again.Load() >= 50 })
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// mute is an engine without hints.
type mute struct{ fleet.Store }

func (mute) Listen(context.Context, string, func(string)) error {
	return fmt.Errorf("hints: %w", errors.ErrUnsupported)
}

func TestAnEngineWithoutHintsSaysSo(t *testing.T) {
	t.Parallel()
	store := openAt(t, serve(t, mute{memstore.New()}, serving{}).address)
	if err := store.Listen(limited(t, 20*time.Second), "me", func(string) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// TestNamesAreForgotten that nobody uses any more.
func TestNamesAreForgotten(t *testing.T) {
	t.Parallel()
	store := openAt(t, "nowhere")
	for i := range 3 * leastForgotten {
		store.noteName(fmt.Sprint(i))
		store.names.used[fmt.Sprint(i)] = time.Now().Add(-2 * unused)
	}
	store.noteName("used")
	if n := len(store.names.used); n > leastForgotten+1 {
		t.Errorf("%d names are known", n)
	}
	told := false
	store.tellAll(func(name string) { told = told || name == "used" })
	if !told {
		t.Error("what is used is forgotten")
	}
}
