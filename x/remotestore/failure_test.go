package remotestore

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
)

// openBehindProxies opens a store that reaches one backend through several servers, each
// behind its own proxy. The store uses the first server.
func openBehindProxies(t *testing.T, backend fleet.Store, servers int, how serving) (*Store, []*storetest.Proxy) {
	t.Helper()
	var (
		proxies []*storetest.Proxy
		hosts   []string
	)
	for range servers {
		p := storetest.NewProxy(t, serve(t, backend, how).address)
		proxies, hosts = append(proxies, p), append(hosts, p.Address)
	}
	store := openAt(t, hosts...)
	store.servers.turn.Store(0)
	return store, proxies
}

// currentAddress returns the address of the server that the store uses.
func (s *Store) currentAddress() string {
	to, _ := s.servers.current()
	return to.address
}

func TestStore_ReconnectsAfterACut(t *testing.T) {
	t.Parallel()
	store, proxies := openBehindProxies(t, memstore.New(), 1, serving{})
	id := open(t, store, "a", protocol.Config{Capacity: 1})
	for seq := range uint64(20) {
		r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: seq + 1})
		if err != nil || r.Status != protocol.Applied {
			t.Fatalf("%+v, %v", r, err)
		}
		proxies[0].Cut()
	}
}

// openLossy opens a store that reaches a backend through two servers. The first, which
// the store uses, drops its replies while loses is true.
func openLossy(t *testing.T, backend fleet.Store) (store *Store, loses *atomic.Bool) {
	t.Helper()
	loses = &atomic.Bool{}
	store = openAt(t, serve(t, backend, serving{wrap: dropReplies(loses)}).address, serve(t, backend, serving{}).address)
	store.servers.turn.Store(0)
	return store, loses
}

// TestApply_RepeatsALostReplyElsewhere checks that a batch whose reply was lost is sent
// to the next server, and is applied once.
func TestApply_RepeatsALostReplyElsewhere(t *testing.T) {
	t.Parallel()
	store, loses := openLossy(t, memstore.New())
	id := open(t, store, "a", protocol.Config{Capacity: 5})
	loses.Store(true)
	r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 2)}})
	if err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 || r.InUse != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestApply_FailsOverWhenRepliesAreCut cuts connections within replies. The store
// connects again, to the other server if that one replies.
func TestApply_FailsOverWhenRepliesAreCut(t *testing.T) {
	t.Parallel()
	store, proxies := openBehindProxies(t, memstore.New(), 2, serving{})
	id := open(t, store, "a", protocol.Config{Capacity: 5})
	batch := protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 2)}}
	proxies[0].SetFault(storetest.Fault{CutReplies: true})
	if r, err := store.Apply(ctx, "a", batch); err != nil || r.InUse != 2 || len(r.Results) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if proxies[0].Lost() == 0 || store.currentAddress() != proxies[1].Address {
		t.Error("no reply was cut, or the store still uses that server")
	}
	proxies[1].SetFault(storetest.Fault{CutReplies: true})
	_, err := store.Apply(ctx, "a", batch)
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	storetest.WantError(t, err, "the sema service at 127.0.0.1:")
	proxies[0].Heal()
	if r, err := store.Apply(ctx, "a", batch); err != nil || r.Status != protocol.Repeated || r.InUse != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAdminister_IsNotRepeated checks that a command is not repeated if its reply is
// lost: it was applied, and would fail the second time.
func TestAdminister_IsNotRepeated(t *testing.T) {
	t.Parallel()
	store, loses := openLossy(t, memstore.New())
	open(t, store, "a", protocol.Config{Capacity: 5})
	loses.Store(true)
	command := func(c fleet.Command) {
		t.Helper()
		store.servers.turn.Store(0)
		err := store.Administer(ctx, "a", c)
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, errReplyLost) {
			t.Errorf("%v", err)
		}
		storetest.WantError(t, err, "check whether the command was applied")
	}
	changed := protocol.Config{Capacity: 7, TTL: testTTL, Version: 1, Protocol: protocol.Version}
	command(fleet.Command{Configure: &changed})
	if s, err := store.Inspect(ctx, "a"); err != nil || s.Config.Version != 2 || s.Config.Capacity != 7 {
		t.Errorf("%+v, %v", s, err)
	}
	command(fleet.Command{Delete: true})
	if _, err := store.Inspect(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestStore_FailsOverWhenNotSent checks that a request that was not sent goes to another
// server, even if it is a command.
func TestStore_FailsOverWhenNotSent(t *testing.T) {
	t.Parallel()
	store, proxies := openBehindProxies(t, memstore.New(), 3, serving{})
	proxies[0].SetFault(storetest.Fault{Reject: true})
	proxies[1].SetFault(storetest.Fault{Reject: true})
	open(t, store, "a", protocol.Config{Capacity: 5})
	store.servers.turn.Store(0)
	if err := store.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
		t.Error(err)
	}
	proxies[2].SetFault(storetest.Fault{Reject: true})
	proxies[2].Cut()
	_, err := store.Inspect(ctx, "a")
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Error(err)
	}
	storetest.WantError(t, err, "connection refused", proxies[0].Address, proxies[2].Address)
}

// TestOpen_LostReplyLeavesAnUnusedSession checks that Open is not repeated if its reply
// is lost. The session that was opened stays unused.
func TestOpen_LostReplyLeavesAnUnusedSession(t *testing.T) {
	t.Parallel()
	store, loses := openLossy(t, memstore.New())
	open(t, store, "a", protocol.Config{Capacity: 5})
	loses.Store(true)
	if _, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 5, TTL: testTTL}, sessiontest.Opener("me")); err == nil || errors.Is(err, errReplyLost) {
		t.Error(err)
	}
	if s, err := store.Inspect(ctx, "a"); err != nil || len(s.Sessions) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestStore_LeavesAnUnresponsiveServer checks that a store uses the next server after the
// deadline of a call has passed without a reply. A call without a deadline fails over by
// itself.
func TestStore_LeavesAnUnresponsiveServer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]storetest.Fault{"requests are lost": {LoseRequests: true}, "replies are lost": {LoseReplies: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, proxies := openBehindProxies(t, memstore.New(), 2, serving{})
			id := open(t, store, "a", protocol.Config{Capacity: 5})
			proxies[0].SetFault(fault)
			began := time.Now()
			_, err := store.Apply(limited(t, 1100*time.Millisecond), "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			storetest.WantError(t, err, proxies[0].Address, "did not reply")
			if r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1}); err != nil || r.Status > protocol.Repeated {
				t.Errorf("%+v, %v", r, err)
			}
			store.servers.turn.Store(0)
			if r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 2}); err != nil || r.Status > protocol.Repeated {
				t.Errorf("%+v, %v", r, err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestStore_LeavesAnUnresponsiveServerAfterShortCalls checks that a store uses the next
// server after many calls with short deadlines, of which none waits for long.
func TestStore_LeavesAnUnresponsiveServerAfterShortCalls(t *testing.T) {
	t.Parallel()
	store, proxies := openBehindProxies(t, memstore.New(), 2, serving{})
	open(t, store, "a", protocol.Config{Capacity: 5})
	proxies[0].SetFault(storetest.Fault{LoseReplies: true})
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_, err := store.Inspect(ctx, "a")
		cancel()
		if err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
}

// An unavailableStore fails Inspect with ErrUnavailable.
type unavailableStore struct{ fleet.Store }

func (unavailableStore) Inspect(context.Context, string) (protocol.Snapshot, error) {
	return protocol.Snapshot{}, errors.Join(sema.ErrUnavailable, errors.New("cannot reach redis at 10.0.0.1:6379"))
}

// TestStore_LeavesAServerWithoutItsStore checks that a store uses the next server if a
// server does not reach its store, since another one may reach it.
func TestStore_LeavesAServerWithoutItsStore(t *testing.T) {
	t.Parallel()
	backend := memstore.New()
	broken, good := serve(t, unavailableStore{backend}, serving{}), serve(t, backend, serving{})
	store := openAt(t, broken.address, good.address)
	store.servers.turn.Store(0)
	_, err := store.Inspect(ctx, "a")
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Error(err)
	}
	storetest.WantError(t, err, "redis at 10.0.0.1:6379", "sema service at")
	if _, err := store.Inspect(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestClose_EndsCallsAndListeners(t *testing.T) {
	t.Parallel()
	store, proxies := openBehindProxies(t, memstore.New(), 1, serving{})
	id := open(t, store, "a", protocol.Config{Capacity: 5})
	listening := make(chan error, 1)
	go func() { listening <- store.Listen(ctx, "me", func(string) {}) }()
	proxies[0].SetFault(storetest.Fault{LoseReplies: true})
	calling := make(chan error, 1)
	go func() {
		_, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1})
		calling <- err
	}()
	await(t, "the reply is lost", func() bool { return proxies[0].Lost() > 0 })
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	for _, ended := range []chan error{listening, calling} {
		storetest.WantError(t, <-ended, "the store is closed")
	}
	_, err := store.Inspect(ctx, "a")
	storetest.WantError(t, err, "the store is closed")
	storetest.WantError(t, store.Listen(ctx, "me", nil), "the store is closed")
}

// TestStore_ReportsAnotherServiceAtThePort checks the error if another service listens at
// the port.
func TestStore_ReportsAnotherServiceAtThePort(t *testing.T) {
	t.Parallel()
	server := serve(t, memstore.New(), serving{wrap: notFound})
	_, err := openAt(t, server.address).Inspect(ctx, "a")
	storetest.WantError(t, err, "no sema service at "+server.address)
	if strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}
