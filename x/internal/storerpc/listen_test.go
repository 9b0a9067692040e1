package storerpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

const testTimeout = time.Minute // bounds each wait of a test

// A counted store counts its listeners.
type counted struct {
	fleet.Store
	listening atomic.Int64
	notify    chan func(string)
	broken    chan error
}

func newCounted() *counted {
	return &counted{Store: memstore.New(), notify: make(chan func(string), 8), broken: make(chan error, 1)}
}

func (c *counted) Listen(ctx context.Context, _ string, notify func(string)) error {
	c.listening.Add(1)
	defer c.listening.Add(-1)
	c.notify <- notify
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-c.broken:
		return err
	}
}

func (c *counted) awaitListeners(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); c.listening.Load() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d listeners, want %d", c.listening.Load(), n)
		}
	}
}

func listen(t *testing.T, ctx context.Context, s *served) *connect.ServerStreamForClient[semav1.StoreListenResponse] {
	t.Helper()
	stream, err := s.client.Listen(ctx, &semav1.StoreListenRequest{Instance: []byte("me")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	if !stream.Receive() {
		t.Fatalf("no first message: %v", stream.Err())
	}
	return stream
}

func TestListen_SendsNotificationsAndHeartbeats(t *testing.T) {
	t.Parallel()
	store := newCounted()
	s := serve(t, store, func(h *Handler, _ *http.Server) { h.Heartbeat = 20 * time.Millisecond })
	stream := listen(t, t.Context(), s)
	if got := stream.Msg().Heartbeat; got != 20_000 {
		t.Errorf("a heartbeat every %d µs", got)
	}
	notify := <-store.notify
	for range 1000 { // notify never blocks, however often it is called
		notify("a")
		notify("b")
	}
	notified, beats := map[string]int{}, 0
	for notified["a"] == 0 || notified["b"] == 0 || beats < 3 {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		for _, name := range stream.Msg().Names {
			notified[name]++
		}
		if len(stream.Msg().Names) == 0 {
			beats++
		}
	}
	if notified["a"] > 500 {
		t.Errorf("%d notifications about a, want at most 500", notified["a"])
	}
}

func TestListen_EndsAtShutdown(t *testing.T) {
	t.Parallel()
	store := newCounted()
	s := serve(t, store, nil)
	stream := listen(t, t.Context(), s)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.server.Shutdown(ctx) }()
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("the stream has not ended with Unavailable: %v", stream.Err())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	store.awaitListeners(t, 0)
}

func TestListen_EndsWithItsClient(t *testing.T) {
	t.Parallel()
	store := newCounted()
	s := serve(t, store, nil)
	ctx, cancel := context.WithCancel(t.Context())
	listen(t, ctx, s)
	store.awaitListeners(t, 1)
	cancel()
	store.awaitListeners(t, 0)
}

func TestListen_EndsWithTheStore(t *testing.T) {
	t.Parallel()
	store := newCounted()
	s := serve(t, store, nil)
	stream := listen(t, t.Context(), s)
	store.broken <- fmt.Errorf("no notifications: %w", errors.ErrUnsupported)
	if stream.Receive() {
		t.Fatal("the stream has not ended")
	}
	if fault, _ := wire.ReadFault(stream.Err()); fault == nil || !errors.Is(fault, errors.ErrUnsupported) || !strings.Contains(fault.Error(), "no notifications") {
		t.Error(stream.Err())
	}
}

// TestListen_EndsAfterItsLifetime checks that a stream ends without an error after its
// lifetime, whatever the server's timeouts are.
func TestListen_EndsAfterItsLifetime(t *testing.T) {
	t.Parallel()
	store := newCounted()
	s := serve(t, store, func(h *Handler, server *http.Server) {
		h.Heartbeat, h.Lifetime = 10*time.Millisecond, 400*time.Millisecond
		server.WriteTimeout, server.ReadTimeout = 100*time.Millisecond, 100*time.Millisecond
	})
	began := time.Now()
	stream := listen(t, t.Context(), s)
	for stream.Receive() {
	}
	if err := stream.Err(); err != nil {
		t.Error(err)
	}
	if lived := time.Since(began); lived < 300*time.Millisecond {
		t.Errorf("the stream lasted %v, want at least 300ms", lived)
	}
	store.awaitListeners(t, 0)
}

// TestListen_EndsIfTheClientDoesNotRead checks that a stream ends if its client keeps the
// connection open and does not read. Endless notifications fill all buffers between the
// two, so that the server cannot write.
func TestListen_EndsIfTheClientDoesNotRead(t *testing.T) {
	t.Parallel()
	store := newCounted()
	s := serve(t, store, func(h *Handler, _ *http.Server) { h.Heartbeat, h.Lifetime = time.Second, 200*time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const empty = "\x00\x00\x00\x00\x00" // the envelope of an empty message
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: %d\r\n\r\n%s",
		semav1connect.StoreServiceListenProcedure, len(empty), empty)
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	notify := <-store.notify
	name := strings.Repeat("x", 200)
	for i, deadline := 0, time.Now().Add(testTimeout); store.listening.Load() > 0; i++ {
		notify(fmt.Sprint(name, i))
		if time.Now().After(deadline) {
			t.Fatal("the stream has not ended within a minute")
		}
	}
}
