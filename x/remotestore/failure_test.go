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
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// behind is a store that reaches one engine by several servers, each behind a
// network of its own. It asks the first of them now.
func behind(t *testing.T, engine fleet.Store, servers int, how serving) (*Store, []*enginetest.Proxy) {
	t.Helper()
	var (
		proxies []*enginetest.Proxy
		hosts   []string
	)
	for range servers {
		p := enginetest.NewProxy(t, serve(t, engine, how).address)
		proxies, hosts = append(proxies, p), append(hosts, p.Address)
	}
	store := openAt(t, hosts...)
	store.servers.current.Store(0)
	return store, proxies
}

func (s *Store) asks() string {
	to, _ := s.servers.now()
	return to.address
}

func TestConnectionsThatAreCutAreMadeAgain(t *testing.T) {
	t.Parallel()
	store, proxies := behind(t, memstore.New(), 1, serving{})
	id := open(t, store, "a", protocol.Config{Capacity: 1})
	for seq := range uint64(20) {
		r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: seq + 1})
		if err != nil || r.Status != protocol.Applied {
			t.Fatalf("%+v, %v", r, err)
		}
		proxies[0].Cut()
	}
}

// lossy is a store that reaches an engine by two servers, of which the first loses
// its answers while that is set. It asks that one now.
func lossy(t *testing.T, engine fleet.Store) (store *Store, loses *atomic.Bool) {
	t.Helper()
	loses = &atomic.Bool{}
	store = openAt(t, serve(t, engine, serving{wrap: losing(loses)}).address, serve(t, engine, serving{}).address)
	store.servers.current.Store(0)
	return store, loses
}

// TestALostAnswerToABatchIsAskedForElsewhere, and nothing is done twice.
func TestALostAnswerToABatchIsAskedForElsewhere(t *testing.T) {
	t.Parallel()
	store, loses := lossy(t, memstore.New())
	id := open(t, store, "a", protocol.Config{Capacity: 5})
	loses.Store(true)
	r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 2)}})
	if err != nil || r.Status != protocol.Repeated || len(r.Results) != 1 || r.InUse != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestConnectionsThatAreCutInAnAnswer are made again, elsewhere if there is somebody.
func TestConnectionsThatAreCutInAnAnswer(t *testing.T) {
	t.Parallel()
	store, proxies := behind(t, memstore.New(), 2, serving{})
	id := open(t, store, "a", protocol.Config{Capacity: 5})
	batch := protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 2)}}
	proxies[0].SetFault(enginetest.Fault{CutReplies: true})
	if r, err := store.Apply(ctx, "a", batch); err != nil || r.InUse != 2 || len(r.Results) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if proxies[0].Lost() == 0 || store.asks() != proxies[1].Address {
		t.Error("nothing was lost")
	}
	proxies[1].SetFault(enginetest.Fault{CutReplies: true})
	_, err := store.Apply(ctx, "a", batch)
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	wantError(t, err, "the sema service at 127.0.0.1:")
	proxies[0].Heal()
	if r, err := store.Apply(ctx, "a", batch); err != nil || r.Status != protocol.Repeated || r.InUse != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestACommandIsNotRepeated if its answer is lost: it was done, and would fail the
// second time.
func TestACommandIsNotRepeated(t *testing.T) {
	t.Parallel()
	store, loses := lossy(t, memstore.New())
	open(t, store, "a", protocol.Config{Capacity: 5})
	loses.Store(true)
	command := func(c fleet.Command) {
		t.Helper()
		store.servers.current.Store(0)
		err := store.Administer(ctx, "a", c)
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, errLost) {
			t.Errorf("%v", err)
		}
		wantError(t, err, "look whether it was done")
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

// TestWhatWasNotSentIsAskedElsewhere, commands too.
func TestWhatWasNotSentIsAskedElsewhere(t *testing.T) {
	t.Parallel()
	store, proxies := behind(t, memstore.New(), 3, serving{})
	proxies[0].SetFault(enginetest.Fault{Refuse: true})
	proxies[1].SetFault(enginetest.Fault{Refuse: true})
	open(t, store, "a", protocol.Config{Capacity: 5})
	store.servers.current.Store(0)
	if err := store.Administer(ctx, "a", fleet.Command{Delete: true}); err != nil {
		t.Error(err)
	}
	proxies[2].SetFault(enginetest.Fault{Refuse: true})
	proxies[2].Cut()
	_, err := store.Inspect(ctx, "a")
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Error(err)
	}
	wantError(t, err, "connection refused; is it running?", proxies[0].Address, proxies[2].Address)
}

// TestALostAnswerToOpenLeavesASessionThatNobodyUses.
func TestALostAnswerToOpenLeavesASessionThatNobodyUses(t *testing.T) {
	t.Parallel()
	store, loses := lossy(t, memstore.New())
	open(t, store, "a", protocol.Config{Capacity: 5})
	loses.Store(true)
	if _, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 5, TTL: testTTL}, sessiontest.Opener("me")); err == nil || errors.Is(err, errLost) {
		t.Error(err)
	}
	if s, err := store.Inspect(ctx, "a"); err != nil || len(s.Sessions) != 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestASilentServerIsLeft by those whose time is over, and those who have time find
// out by themselves.
func TestASilentServerIsLeft(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]enginetest.Fault{"deaf": {LoseRequests: true}, "mute": {LoseReplies: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, proxies := behind(t, memstore.New(), 2, serving{})
			id := open(t, store, "a", protocol.Config{Capacity: 5})
			proxies[0].SetFault(fault)
			began := time.Now()
			_, err := store.Apply(limited(t, 1100*time.Millisecond), "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v", err)
			}
			wantError(t, err, proxies[0].Address, "does not answer")
			if r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1}); err != nil || r.Status > protocol.Repeated {
				t.Errorf("%+v, %v", r, err)
			}
			store.servers.current.Store(0)
			if r, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 2}); err != nil || r.Status > protocol.Repeated {
				t.Errorf("%+v, %v", r, err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// TestASilentServerIsLeftByThoseWhoAskBriefly: none of them waits for long, but
// together they do.
func TestASilentServerIsLeftByThoseWhoAskBriefly(t *testing.T) {
	t.Parallel()
	store, proxies := behind(t, memstore.New(), 2, serving{})
	open(t, store, "a", protocol.Config{Capacity: 5})
	proxies[0].SetFault(enginetest.Fault{LoseReplies: true})
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

// down is an engine that is.
type down struct{ fleet.Store }

func (down) Inspect(context.Context, string) (protocol.Snapshot, error) {
	return protocol.Snapshot{}, errors.Join(sema.ErrUnavailable, errors.New("cannot reach redis at 10.0.0.1:6379"))
}

// TestAServerWithoutItsEngineIsLeft: another one may reach it.
func TestAServerWithoutItsEngineIsLeft(t *testing.T) {
	t.Parallel()
	engine := memstore.New()
	broken, good := serve(t, down{engine}, serving{}), serve(t, engine, serving{})
	store := openAt(t, broken.address, good.address)
	store.servers.current.Store(0)
	_, err := store.Inspect(ctx, "a")
	if !errors.Is(err, sema.ErrUnavailable) {
		t.Error(err)
	}
	wantError(t, err, "redis at 10.0.0.1:6379", "sema service at")
	if _, err := store.Inspect(ctx, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	store, proxies := behind(t, memstore.New(), 1, serving{})
	id := open(t, store, "a", protocol.Config{Capacity: 5})
	listening := make(chan error, 1)
	go func() { listening <- store.Listen(ctx, "me", func(string) {}) }()
	proxies[0].SetFault(enginetest.Fault{LoseReplies: true})
	calling := make(chan error, 1)
	go func() {
		_, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: 1})
		calling <- err
	}()
	await(t, "the answer is lost", func() bool { return proxies[0].Lost() > 0 })
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	for _, ended := range []chan error{listening, calling} {
		wantError(t, <-ended, "the store is closed")
	}
	_, err := store.Inspect(ctx, "a")
	wantError(t, err, "the store is closed")
	wantError(t, store.Listen(ctx, "me", nil), "the store is closed")
}

// TestSomebodyElseAtThePort is found out.
func TestSomebodyElseAtThePort(t *testing.T) {
	t.Parallel()
	server := serve(t, memstore.New(), serving{wrap: elsewhere})
	_, err := openAt(t, server.address).Inspect(ctx, "a")
	wantError(t, err, "there is no sema service at "+server.address)
	if strings.Contains(err.Error(), "hush") {
		t.Error(err)
	}
}
