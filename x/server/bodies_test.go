package server_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// A blockedStore blocks batches until the test allows them.
type blockedStore struct {
	*memstore.Store
	blocked sync.Map // principal to *atomic.Int64
	release chan struct{}
}

func (s *blockedStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	n, _ := s.blocked.LoadOrStore(b.Owner.Principal, &atomic.Int64{})
	n.(*atomic.Int64).Add(1)
	<-s.release
	return s.Store.Apply(context.WithoutCancel(ctx), name, b)
}

func (s *blockedStore) of(principal string) int64 {
	if n, ok := s.blocked.Load(principal); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

// TestLimits_LargeRequests checks that large requests in progress are bounded for each
// principal, and are no longer counted after they have ended.
func TestLimits_LargeRequests(t *testing.T) {
	t.Parallel()
	store := &blockedStore{Store: memstore.New(), release: make(chan struct{})}
	s := open(t, store, server.Options{Tokens: []server.Token{all("a"), all("b")}})
	release := sync.OnceFunc(func() { close(store.release) })
	t.Cleanup(release)
	large := &semav1.StoreApplyRequest{Name: "db", Key: make([]byte, 16), Seq: 1}
	for range 120 {
		large.Details = append(large.Details, &semav1.Details{Holder: make([]byte, 8<<10)})
	}
	var wg sync.WaitGroup
	var rejected atomic.Int64
	send := func(token string, session int) {
		client := semav1connect.NewStoreServiceClient(s.http.Client(), s.url, connect.WithInterceptors(unaryBearer(token)))
		m := &semav1.StoreApplyRequest{Name: large.Name, Key: large.Key, Seq: 1, Details: large.Details, Session: uint64(session)}
		_, err := client.Apply(t.Context(), m)
		switch {
		case err == nil:
		case token == "a": // a reply, or an error because the rest of the request was not read
			rejected.Add(1)
		default:
			t.Error(err)
		}
	}
	const requests = 45
	for i := range requests {
		wg.Go(func() { send("a", i+1) })
	}
	waitFor(t, "all requests are in the store, or rejected", func() bool { return store.of("token:a")+rejected.Load() == requests })
	if n := store.of("token:a"); n > 40 || n < 20 {
		t.Errorf("%d large requests of one principal are in progress", n)
	}
	wg.Go(func() { send("b", 1) })
	waitFor(t, "another principal is served", func() bool { return store.of("token:b") == 1 })
	release()
	wg.Wait()
	s.auth = "b"
	if !s.metric(fmt.Sprintf(`sema_limited_total{limit="bodies"} %d`, rejected.Load())) {
		t.Errorf("%d requests were rejected for another reason", rejected.Load())
	}
	before := rejected.Load()
	for i := range requests {
		send("a", 100+i)
	}
	if n := rejected.Load() - before; n > 0 {
		t.Errorf("%d requests were rejected after all others had ended", n)
	}
}
