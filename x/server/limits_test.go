package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

func (s *site) metric(line string) bool {
	s.t.Helper()
	return strings.Contains(s.want(200, "GET", "/metrics", "").text, line+"\n")
}

// TestLimits_WaitingIsSharedFairly checks that one tenant cannot exhaust the shared limit: waits
// over JSON and RPC, and queued acquires of Go clients, count for their principal.
func TestLimits_WaitingIsSharedFairly(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Waiting: 4}})
	s.auth = "b"
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1", "")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		request, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/semaphores/db/leases?wait=50s", nil)
		request.Header.Set("Authorization", "Bearer a")
		if response, err := s.http.Client().Do(request); err == nil {
			response.Body.Close()
		}
	})
	waitFor(t, "one waits", func() bool { return s.send("GET", "/v1/semaphores/db", "").body["waiting"] == 1.0 })
	store := s.store("?token=a")
	session := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 1})
	reply := session.Send(sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 1))
	if len(reply.Results) != 1 || reply.Results[0].Ticket != 2 || reply.Results[0].Kind != protocol.QueueFull {
		t.Errorf("half of 4 may wait, one waits over HTTP and one in a queue: %+v", reply.Results)
	}
	s.auth = "a"
	a := s.want(429, "POST", "/v1/semaphores/db/leases?wait=1s", "")
	if a.header.Get("Retry-After") == "" || a.body["type"] != "/problems/limit" || !strings.Contains(a.text, "limits.waiting of token:a is 2") {
		t.Errorf("%v %s", a.header, a.text)
	}
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url, connect.WithInterceptors(unaryBearer("a")))
	if _, err := client.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: "db", WaitMs: 1000}); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "limits.waiting") {
		t.Errorf("over RPC: %v", err)
	}
	s.auth = "b"
	if a := s.want(429, "POST", "/v1/semaphores/db/leases?wait=1ms", ""); a.body["type"] != "/problems/timeout" {
		t.Errorf("another tenant is rejected: %s", a.text)
	}
	session.Send(protocol.Op{Verb: protocol.Cancel, Ticket: 1})
	if reply := session.Send(sessiontest.Acquire(3, 1)); len(reply.Results) != 0 {
		t.Errorf("a cancelled acquire still counts: %+v", reply.Results)
	}
	if !s.metric(`sema_limited_total{limit="waiting"} 3`) {
		t.Error("rejections are not counted")
	}
	if !strings.Contains(s.log.String(), "limits.waiting") {
		t.Errorf("the log has no limit: %s", s.log)
	}
}

type unaryBearer string

func (b unaryBearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if b != "" {
			r.Header().Set("Authorization", "Bearer "+string(b))
		}
		return next(ctx, r)
	}
}

func (b unaryBearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

func (b unaryBearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return bearer(b).WrapStreamingClient(next)
}

// TestLimits_StreamsAreSharedFairly checks that streams over JSON, RPC and of Go clients count for
// their principal.
func TestLimits_StreamsAreSharedFairly(t *testing.T) {
	t.Parallel()
	limited := all("a")
	limited.Limits.Streams = 3
	s := start(t, server.Options{Tokens: []server.Token{limited, all("b")}, Limits: server.Limits{Streams: 100}})
	s.auth = "a"
	s.want(201, "POST", "/v1/semaphores/db/leases?capacity=9", "")
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	stream := func(method, path string) *http.Response {
		request, _ := http.NewRequestWithContext(ctx, method, s.url+path, nil)
		request.Header.Set("Authorization", "Bearer "+s.auth)
		response, err := s.http.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	for _, r := range []*http.Response{stream("GET", "/v1/semaphores/db/watch"), stream("POST", "/v1/semaphores/db/leases?hold=connection")} {
		if r.StatusCode != http.StatusOK {
			t.Fatal(r.Status)
		}
	}
	programs := semav1connect.NewStoreServiceClient(s.http.Client(), s.url, connect.WithInterceptors(unaryBearer("a")))
	listening, err := programs.Listen(ctx, &semav1.StoreListenRequest{Instance: []byte("me")})
	if err != nil || !listening.Receive() {
		t.Fatal(err)
	}
	defer listening.Close()
	waitFor(t, "three streams are counted", func() bool { return s.metric("sema_http_streams 3") })
	if r := stream("GET", "/v1/semaphores/db/watch"); r.StatusCode != http.StatusTooManyRequests {
		t.Error(r.Status)
	}
	if r := stream("POST", "/v1/semaphores/db/leases?hold=connection"); r.StatusCode != http.StatusTooManyRequests {
		t.Error(r.Status)
	}
	service := semav1connect.NewSemaServiceClient(s.http.Client(), s.url, connect.WithInterceptors(unaryBearer("a")))
	watch, err := service.Watch(ctx, &semav1.WatchRequest{Semaphore: "db"})
	if err != nil {
		t.Fatal(err)
	}
	if watch.Receive() || connect.CodeOf(watch.Err()) != connect.CodeResourceExhausted {
		t.Error(watch.Err())
	}
	watch.Close()
	s.auth = "b"
	if r := stream("GET", "/v1/semaphores/db/watch"); r.StatusCode != http.StatusOK {
		t.Errorf("another tenant: %s", r.Status)
	}
	cancel()
}

// TestLimits_Held checks that what a principal has in the store is bounded: leases of all kinds,
// queued acquires, and sessions.
func TestLimits_Held(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 10}})
	s.auth = "a"
	lease := s.want(201, "POST", "/v1/semaphores/db/leases?capacity=100", "").header.Get("Location")
	session := sessiontest.Begin(t, s.store("?token=a"), "db", protocol.Config{Capacity: 100})
	held := session.Granted(2, sessiontest.Acquire(1, 4), sessiontest.Acquire(2, 1))
	// A lease over HTTP, a session and two leases are held: the fifth reaches the limit.
	reply := session.Send(protocol.Op{Verb: protocol.Split, Lease: held[0], Ticket: 3, Weight: 1}, protocol.Op{Verb: protocol.Split, Lease: held[0], Ticket: 4, Weight: 1}, sessiontest.Acquire(5, 1))
	if len(reply.Results) != 3 || reply.Results[0].Kind != protocol.Granted || reply.Results[1].Kind != protocol.QueueFull || reply.Results[2].Kind != protocol.QueueFull {
		t.Errorf("%+v", reply.Results)
	}
	if a := s.want(429, "POST", "/v1/semaphores/db/leases", ""); !strings.Contains(a.text, "limits.held of token:a is 5") {
		t.Error(a.text)
	}
	if status, text := s.connect(semav1connect.StoreServiceOpenProcedure, `{"name":"db","key":"c2l4dGVlbi1ieXRlcyEhIQ==","config":{"capacity":1,"ttl":"1000000"}}`); status != http.StatusBadRequest || !strings.Contains(text, "limits.held") {
		t.Errorf("a session: %d %s", status, text)
	}
	s.auth = "b"
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	s.auth = "a"
	s.want(204, "DELETE", lease, "")
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	s.want(429, "POST", "/v1/semaphores/db/leases", "")
	// Of held[0], 1 of 4 was split off. Of the rest, 2 are released, then 1.
	session.Send(protocol.Op{Verb: protocol.Release, Lease: held[0], Weight: 2})
	s.want(429, "POST", "/v1/semaphores/db/leases", "")
	session.Send(protocol.Op{Verb: protocol.Release, Lease: held[0], Weight: 1})
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
	session.Send(sessiontest.Release(held[1]))
	s.want(201, "POST", "/v1/semaphores/db/leases", "")
}

// TestLimits_HeldEndsWithTheSession checks that a session that ends or expires is not counted.
func TestLimits_HeldEndsWithTheSession(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 8}})
	s.auth = "a"
	store := s.store("?token=a")
	const ttl = 200_000 // µs
	session := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 100, TTL: ttl})
	session.Granted(3, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 1), sessiontest.Acquire(3, 1))
	s.want(429, "POST", "/v1/semaphores/db/leases", "")
	b := session.Next()
	b.End = true
	if _, err := store.Apply(t.Context(), "db", b); err != nil {
		t.Fatal(err)
	}
	session = sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 100, TTL: ttl})
	session.Granted(3, sessiontest.Acquire(1, 1), sessiontest.Acquire(2, 1), sessiontest.Acquire(3, 1))
	waitFor(t, "it has expired", func() bool { return s.send("POST", "/v1/semaphores/db/leases", "").status == 201 })
}

// TestLimits_Names checks that a token cannot create an unbounded number of semaphores.
func TestLimits_Names(t *testing.T) {
	t.Parallel()
	scoped := all("a")
	scoped.Prefix = "a-"
	store := memstore.New()
	if _, _, err := store.Open(t.Context(), "a-old", server.Declaration{Capacity: 1}.Config(), protocol.Opener{Client: protocol.Client{Instance: "before"}}); err != nil {
		t.Fatal(err)
	}
	s := open(t, store, server.Options{
		Tokens: []server.Token{scoped, all("b")}, Limits: server.Limits{Names: 6},
		Declared: []server.Declaration{{Name: "a-declared", Capacity: 1}, {Name: "a-pattern-*", Capacity: 1}},
	})
	s.auth = "a"
	s.want(201, "POST", "/v1/semaphores/a-old/leases", "") // counted: only this token has its prefix
	s.want(201, "POST", "/v1/semaphores/a-1/leases?capacity=1", "")
	s.want(201, "POST", "/v1/semaphores/a-pattern-1/leases", "")
	s.want(201, "POST", "/v1/semaphores/a-declared/leases", "") // not counted
	for name, path := range map[string]string{"JSON": "/v1/semaphores/a-2/leases?capacity=1", "a pattern": "/v1/semaphores/a-pattern-2/leases"} {
		if a := s.want(429, "POST", path, ""); !strings.Contains(a.text, "limits.names of token:a is 3") {
			t.Errorf("%s: %s", name, a.text)
		}
	}
	s.want(429, "PUT", "/v1/semaphores/a-2", `{"capacity": 1}`)
	if _, err := s.store("?token=a").Inspect(t.Context(), "a-2"); err == nil {
		t.Error("the semaphore was created")
	}
	db, err := s.dial("?token=a").Semaphore("a-2", 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Acquire(t.Context(), 1); !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), "limits.names") {
		t.Errorf("a Go client: %v", err)
	}
	s.auth = "b"
	s.want(201, "POST", "/v1/semaphores/b-1/leases?capacity=1", "")
	s.auth = "a"
	s.want(204, "DELETE", "/v1/semaphores/a-1", "")
	s.want(201, "POST", "/v1/semaphores/a-2/leases?capacity=1", "")
	s.want(429, "POST", "/v1/semaphores/a-3/leases?capacity=1", "")
}

// TestPage_ListsAndLeases checks paging of lists and leases, over JSON and RPC.
func TestPage_ListsAndLeases(t *testing.T) {
	t.Parallel()
	store := memstore.New()
	s := open(t, store, server.Options{})
	session := sessiontest.Begin(t, store, "big", protocol.Config{Capacity: 1500})
	for i := range 24 {
		var ops []protocol.Op
		for k := range 100 {
			ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(i*100 + k + 1), Weight: 1, Details: &protocol.Details{Holder: fmt.Sprint("m", i*100+k)}})
		}
		session.Send(ops...)
	}
	for _, limit := range []int{1000, 700, 999} {
		seen, pages := map[string]int{}, 0
		for path := fmt.Sprintf("/v1/semaphores/big?limit=%d", limit); ; pages++ {
			a := s.want(200, "GET", path, "")
			if a.body["in_use"] != 1500.0 || a.body["waiting"] != 900.0 {
				t.Fatalf("%v in use, %v waiting", a.body["in_use"], a.body["waiting"])
			}
			n := 0
			for _, list := range []string{"holders", "waiters"} {
				entries, _ := a.body[list].([]any)
				for _, e := range entries {
					seen[e.(map[string]any)["holder"].(string)]++
					n++
				}
			}
			if n > limit {
				t.Errorf("a page of %d", n)
			}
			next, _ := a.body["next"].(string)
			if next == "" {
				break
			}
			path = fmt.Sprintf("/v1/semaphores/big?limit=%d&after=%s", limit, next)
		}
		if len(seen) != 2400 || pages > 3 {
			t.Errorf("limit %d: %d of 2400 in %d pages", limit, len(seen), pages+1)
		}
	}
	if a := s.want(200, "GET", "/v1/semaphores/big", ""); len(a.body["holders"].([]any)) != 1000 || a.body["next"] == nil {
		t.Error("a page has 1000 entries by default")
	}
	client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url)
	rpc, after := 0, ""
	for {
		r, err := client.Info(t.Context(), &semav1.InfoRequest{Semaphore: "big", Limit: 800, After: after})
		if err != nil {
			t.Fatal(err)
		}
		rpc += len(r.Holders) + len(r.Waiters)
		if after = r.Next; after == "" {
			break
		}
	}
	if rpc != 2400 {
		t.Errorf("%d over RPC", rpc)
	}
	for i := range 5 {
		s.want(201, "POST", fmt.Sprintf("/v1/semaphores/n%d/leases?capacity=1", i), "")
	}
	var names []any
	for path := "/v1/semaphores?prefix=n&limit=2"; path != ""; {
		a := s.want(200, "GET", path, "")
		for _, one := range a.body["semaphores"].([]any) {
			names = append(names, one.(map[string]any)["name"])
		}
		next, _ := a.body["next"].(string)
		if path = ""; next != "" {
			path = "/v1/semaphores?prefix=n&limit=2&after=" + next
		}
	}
	if fmt.Sprint(names) != "[n0 n1 n2 n3 n4]" {
		t.Error(names)
	}
	for _, bad := range []string{"limit=0", "limit=1001", "limit=x", "after=x", "after=hx", "after=w1"} {
		s.want(400, "GET", "/v1/semaphores/big?"+bad, "")
	}
}

func textLogger(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
