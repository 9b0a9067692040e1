package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

func newQuietService(t *testing.T, store fleet.Store, o Options) *service {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	s, err := newService(store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestDeadlocks_SearchOrder checks that semaphores that have granted nothing for longest are
// searched first, and that a client with many of them does not exclude those of others.
func TestDeadlocks_SearchOrder(t *testing.T) {
	t.Parallel()
	token := func(name, prefix string) Token {
		return Token{Name: name, Hash: HashToken(name + "-0123456789"), Prefix: prefix, Verbs: Verbs()}
	}
	s := newQuietService(t, memstore.New(), Options{Tokens: []Token{token("greedy", "g/"), token("small", "s/"), token("ops", "")}})
	now := time.Now()
	var queues []queue
	for i := range 1000 {
		queues = append(queues, queue{name: fmt.Sprintf("g/%04d", i), since: now.Add(-time.Hour)})
	}
	queues = append(queues, queue{name: "s/recent", since: now}, queue{name: "s/stuck", since: now.Add(-time.Minute)}, queue{name: "shared", since: now})
	if got, want := s.searchOrder(queues)[:6], []string{"g/0000", "s/stuck", "shared", "g/0001", "s/recent", "g/0002"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

// TestSampler_QueuesThatGrantNothing checks since when a semaphore has had waiters without a grant.
func TestSampler_QueuesThatGrantNothing(t *testing.T) {
	t.Parallel()
	p := newSampler(newQuietService(t, memstore.New(), Options{}))
	began := time.Now()
	states := []protocol.Summary{{Name: "a", Waiting: 1}, {Name: "b", Waiting: 3}, {Name: "idle"}}
	p.setQueues(states, began)
	states[1].Waiting = 0
	p.setQueues(states, began.Add(5*time.Second))
	states[1].Waiting = 1
	p.setQueues(states, began.Add(10*time.Second))
	if len(p.queues) != 2 || !p.queues[0].since.Equal(began) || !p.queues[1].since.Equal(began.Add(10*time.Second)) {
		t.Errorf("queues %+v", p.queues)
	}
}

// unlisted is a store that cannot be listed for a while.
type unlisted struct {
	fleet.Store
	failing atomic.Bool
}

func (u *unlisted) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	if u.failing.Load() {
		return nil, io.ErrUnexpectedEOF
	}
	return u.Store.List(ctx, q)
}

// TestSampler_Fresh checks for how long a list counts as the present, and that a store that fails is
// not asked again by each scrape.
func TestSampler_Fresh(t *testing.T) {
	t.Parallel()
	store := &unlisted{Store: memstore.New()}
	s := newQuietService(t, store, Options{})
	p := newSampler(s)
	if p.fresh(time.Now()) {
		t.Error("nothing was listed yet")
	}
	p.refresh(t.Context(), 0)
	now := time.Now()
	if !p.fresh(now) || p.fresh(now.Add(time.Hour)) {
		t.Error("a list counts as the present for a while")
	}
	store.failing.Store(true)
	p.tried = time.Time{}
	p.refresh(t.Context(), 0)
	if !p.failed || !p.fresh(now) {
		t.Error("one failure does not change what is known")
	}
	tried := p.tried
	p.refresh(t.Context(), 0)
	if time.Since(tried) < sampleEvery/2 && p.tried != tried {
		t.Error("a store that has just failed is asked again")
	}
}
