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

const soon = time.Minute // is when it has to be so

// counted counts who listens.
type counted struct {
	fleet.Store
	listening atomic.Int64
	hint      chan func(string)
	broken    chan error
}

func newCounted() *counted {
	return &counted{Store: memstore.New(), hint: make(chan func(string), 8), broken: make(chan error, 1)}
}

func (c *counted) Listen(ctx context.Context, _ string, hint func(string)) error {
	c.listening.Add(1)
	defer c.listening.Add(-1)
	c.hint <- hint
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-c.broken:
		return err
	}
}

func (c *counted) awaitListeners(t *testing.T, n int64) {
	t.Helper()
	for deadline := time.Now().Add(soon); c.listening.Load() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d listen, want %d", c.listening.Load(), n)
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

func TestHintsAndHeartbeatsArePassedOn(t *testing.T) {
	t.Parallel()
	engine := newCounted()
	s := serve(t, engine, func(h *Handler, _ *http.Server) { h.Heartbeat = 20 * time.Millisecond })
	stream := listen(t, t.Context(), s)
	if got := stream.Msg().Heartbeat; got != 20_000 {
		t.Errorf("a heartbeat every %d µs", got)
	}
	hint := <-engine.hint
	for range 1000 { // however often, and nobody waits for anybody
		hint("a")
		hint("b")
	}
	told, beats := map[string]int{}, 0
	for told["a"] == 0 || told["b"] == 0 || beats < 3 {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		for _, name := range stream.Msg().Names {
			told[name]++
		}
		if len(stream.Msg().Names) == 0 {
			beats++
		}
	}
	if told["a"] > 500 {
		t.Errorf("%d messages about the same", told["a"])
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	t.Parallel()
	engine := newCounted()
	s := serve(t, engine, nil)
	stream := listen(t, t.Context(), s)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.server.Shutdown(ctx) }()
	if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("the stream goes on: %v", stream.Err())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	engine.awaitListeners(t, 0)
}

func TestAStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	engine := newCounted()
	s := serve(t, engine, nil)
	ctx, cancel := context.WithCancel(t.Context())
	listen(t, ctx, s)
	engine.awaitListeners(t, 1)
	cancel()
	engine.awaitListeners(t, 0)
}

func TestAStreamEndsWithTheEngine(t *testing.T) {
	t.Parallel()
	engine := newCounted()
	s := serve(t, engine, nil)
	stream := listen(t, t.Context(), s)
	engine.broken <- fmt.Errorf("this engine has no hints: %w", errors.ErrUnsupported)
	if stream.Receive() {
		t.Fatal("the stream goes on")
	}
	if fault, _ := wire.ReadFault(stream.Err()); fault == nil || !errors.Is(fault, errors.ErrUnsupported) || !strings.Contains(fault.Error(), "no hints") {
		t.Error(stream.Err())
	}
}

// TestAStreamEndsAtTheEndOfItsLife without an error, and whatever the server allows
// for an answer.
func TestAStreamEndsAtTheEndOfItsLife(t *testing.T) {
	t.Parallel()
	engine := newCounted()
	s := serve(t, engine, func(h *Handler, server *http.Server) {
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
		t.Errorf("it has lived for %v", lived)
	}
	engine.awaitListeners(t, 0)
}

// TestAClientThatDoesNotReadIsGivenUp: it has a connection, and is not there. Hints
// without end fill all that is between the two, so that the server cannot write.
func TestAClientThatDoesNotReadIsGivenUp(t *testing.T) {
	t.Parallel()
	engine := newCounted()
	s := serve(t, engine, func(h *Handler, _ *http.Server) { h.Heartbeat, h.Lifetime = time.Second, 200*time.Millisecond })
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const empty = "\x00\x00\x00\x00\x00" // in its envelope
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/connect+proto\r\nContent-Length: %d\r\n\r\n%s",
		semav1connect.StoreServiceListenProcedure, len(empty), empty)
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q, %v", line, err)
	}
	hint := <-engine.hint
	name := strings.Repeat("x", 200)
	for i, deadline := 0, time.Now().Add(soon); engine.listening.Load() > 0; i++ {
		hint(fmt.Sprint(name, i))
		if time.Now().After(deadline) {
			t.Fatal("the stream goes on")
		}
	}
}
