package storerpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A served store is behind a server, with an HTTP/1.1 and an HTTP/2 client.
type served struct {
	url     string
	server  *http.Server
	handler *Handler
	http    *http.Client // HTTP/1.1
	client  semav1connect.StoreServiceClient
}

func serve(t *testing.T, store fleet.Store, change func(*Handler, *http.Server)) *served {
	t.Helper()
	mux := http.NewServeMux()
	path, handler := NewHandler(store)
	var serving sync.WaitGroup // handlers, for which Close does not wait
	mux.Handle(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serving.Add(1)
		defer serving.Done()
		handler.ServeHTTP(w, r)
	}))
	s := &served{handler: handler, server: &http.Server{Handler: mux, Protocols: &http.Protocols{}}}
	s.server.Protocols.SetHTTP1(true)
	s.server.Protocols.SetUnencryptedHTTP2(true)
	s.server.RegisterOnShutdown(handler.EndStreams)
	if change != nil {
		change(handler, s.server)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + l.Addr().String()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.server.Serve(l)
	}()
	plain := &http.Transport{}
	two := &http.Transport{Protocols: &http.Protocols{}}
	two.Protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Client{Transport: plain}
	s.client = semav1connect.NewStoreServiceClient(&http.Client{Transport: two}, s.url)
	t.Cleanup(func() {
		plain.CloseIdleConnections()
		two.CloseIdleConnections()
		s.server.Close()
		<-ended
		serving.Wait()
	})
	return s
}

// post sends a JSON request over HTTP/1.1, as curl does, and returns the status and the
// reply.
func (s *served) post(t *testing.T, procedure, body string) (int, string) {
	t.Helper()
	r, err := s.http.Post(s.url+procedure, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// TestHandler_AcceptsJSON checks that requests and replies can be JSON.
func TestHandler_AcceptsJSON(t *testing.T) {
	t.Parallel()
	s := serve(t, memstore.New(), nil)
	status, text := s.post(t, semav1connect.StoreServiceOpenProcedure, `{"name":"a","key":"c2l4dGVlbi1ieXRlcyEhIQ==","config":{"capacity":2,"ttl":"1000000"}}`)
	if status != http.StatusOK || !strings.Contains(text, `"session"`) {
		t.Errorf("%d %s", status, text)
	}
	status, text = s.post(t, semav1connect.StoreServiceInspectProcedure, `{"name":"b"}`)
	if status != http.StatusNotFound || !strings.Contains(text, `"not_found"`) || !strings.Contains(text, "REASON_NOT_EXIST") {
		t.Errorf("%d %s", status, text)
	}
}

func TestHandler_RejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, memstore.New(), nil)
	long := bytes.Repeat([]byte("x"), maxText+1)
	config := &semav1.Config{Capacity: 1, Ttl: 1e6}
	for what, ask := range map[string]func(context.Context) error{
		"name": func(ctx context.Context) error {
			_, err := s.client.Open(ctx, &semav1.StoreOpenRequest{Name: "a b", Config: config})
			return err
		},
		"instance, metadata or reason": func(ctx context.Context) error {
			_, err := s.client.Open(ctx, &semav1.StoreOpenRequest{Name: "a", Config: config, Client: &semav1.Client{Host: long}})
			return err
		},
		"metadata or reason of 8193 bytes": func(ctx context.Context) error {
			_, err := s.client.Apply(ctx, &semav1.StoreApplyRequest{Name: "a", Details: []*semav1.Details{{Labels: long}}})
			return err
		},
		"malformed message": func(ctx context.Context) error {
			_, err := s.client.Apply(ctx, &semav1.StoreApplyRequest{Name: "a", Ops: []*semav1.Op{{Details: 1}}})
			return err
		},
		"want 1 to 200 bytes": func(ctx context.Context) error {
			_, err := s.client.Inspect(ctx, &semav1.StoreInspectRequest{})
			return err
		},
		"missing or unknown command": func(ctx context.Context) error {
			_, err := s.client.Administer(ctx, &semav1.StoreAdministerRequest{Name: "a"})
			return err
		},
		`'{'`: func(ctx context.Context) error {
			_, err := s.client.List(ctx, &semav1.StoreListRequest{Prefix: "{"})
			return err
		},
	} {
		err := ask(t.Context())
		fault, _ := wire.ReadFault(err)
		if fault == nil || !errors.Is(fault, sema.ErrInvalid) || !strings.Contains(fault.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.client.Apply(t.Context(), &semav1.StoreApplyRequest{Name: "a", Details: []*semav1.Details{{Site: make([]byte, maxRequest)}}})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a request of %d bytes: %v", maxRequest, err)
	}
}

// TestApply_BoundsWeights checks that weights are bounded, since the sum of two unbounded
// ones would overflow.
func TestApply_BoundsWeights(t *testing.T) {
	t.Parallel()
	key := []byte("sixteen-bytes!!!")
	s := serve(t, memstore.New(), nil)
	opened, err := s.client.Open(t.Context(), &semav1.StoreOpenRequest{Name: "a", Key: key, Config: &semav1.Config{Ttl: 1e6}})
	if err != nil {
		t.Fatal(err)
	}
	const most = 1<<63 - 1
	r, err := s.client.Apply(t.Context(), &semav1.StoreApplyRequest{Name: "a", Session: opened.Session, Key: key, Seq: 1, Ops: []*semav1.Op{
		{Verb: semav1.Verb_VERB_ACQUIRE, Ticket: 1, Weight: most}, {Verb: semav1.Verb_VERB_ACQUIRE, Ticket: 2, Weight: most},
	}})
	if err != nil || r.Wanted != 2*(protocol.MaxCapacity+1) {
		t.Errorf("%v, %v", r, err)
	}
}

// A slow store blocks Inspect until its context ends.
type slow struct {
	fleet.Store
	left chan time.Duration // time until the deadline when Inspect was called
}

func (s *slow) Inspect(ctx context.Context, _ string) (protocol.Snapshot, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return protocol.Snapshot{}, errors.New("no deadline")
	}
	s.left <- time.Until(deadline)
	<-ctx.Done()
	return protocol.Snapshot{}, context.Cause(ctx)
}

func TestHandler_PassesDeadlinesToTheStore(t *testing.T) {
	t.Parallel()
	store := &slow{memstore.New(), make(chan time.Duration, 1)}
	s := serve(t, store, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := s.client.Inspect(ctx, &semav1.StoreInspectRequest{Name: "a"})
	if connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Error(err)
	}
	if left := <-store.left; left > 300*time.Millisecond {
		t.Errorf("the store has %v until the deadline, want at most 300ms", left)
	}
}

func ExampleNewHandler() {
	store := memstore.New()
	mux := http.NewServeMux()
	path, handler := NewHandler(store)
	mux.Handle(path, handler)
	server := &http.Server{Handler: mux, Protocols: &http.Protocols{}}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	server.RegisterOnShutdown(handler.EndStreams)
	fmt.Println(path)
	// Output: /sema.v1.StoreService/
}

// TestApply_DecodedSizeIsBounded sends requests of two bytes for each operation. They are
// rejected before they are decoded into hundreds of megabytes; in JSON, before they are
// decoded at all.
func TestApply_DecodedSizeIsBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, memstore.New(), nil)
	for kind, body := range map[string]string{
		"application/proto": "\x0a\x01a" + strings.Repeat("\x32\x00", (maxRequest-3)/2),
		"application/json":  `{"name":"a","ops":[` + strings.Repeat("{},", 100_000) + `{}]}`,
	} {
		response, err := s.http.Post(s.url+semav1connect.StoreServiceApplyProcedure, kind, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "more than 4096 operations") && !strings.Contains(string(text), "bytes of JSON") {
			t.Errorf("%s: %s %s", kind, response.Status, text)
		}
	}
	message := &semav1.StoreApplyRequest{}
	bomb := []byte(strings.Repeat("\x32\x00", 500_000))
	if err := (binaryCodec{}).Unmarshal(bomb, message); err == nil || len(message.Ops) > 0 {
		t.Errorf("%v, after %d operations were decoded", err, len(message.Ops))
	}
}
