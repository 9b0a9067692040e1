package pgstore

import (
	"fmt"
	"testing"

	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// openListening opens a store as a user of its own, so that its listening connections can
// be counted. The store listens at the given address.
func openListening(t *testing.T, at string) (s *Store, listeners func(of string) int64) {
	t.Helper()
	schema := newSchema()
	observer := openIn(t, schema, Options{})
	exec(t, observer, "CREATE ROLE "+schema+" SUPERUSER LOGIN")
	s = openAt(t, pgtest.Shared.Server(t).URLOf(schema, "postgres").String(), Options{Schema: schema, Listen: at})
	return s, func(of string) int64 {
		t.Helper()
		return count(t, observer, fmt.Sprintf("SELECT count(%s) FROM pg_stat_activity WHERE usename = '%s' AND application_name = '%s'", of, schema, listenerName))
	}
}

func TestListen_SharesOneConnection(t *testing.T) {
	t.Parallel()
	store, listeners := openListening(t, listenAuto)
	group := sessiontest.NewListeners(t, store, store, 300)
	group.AwaitSubscribed()
	group.WantNotified()
	if n := listeners("*"); n != 1 {
		t.Errorf("300 instances listen on %d connections, want 1", n)
	}
	stayed := group.Members[200:]
	for _, m := range group.Members[:200] {
		m.Stop()
	}
	group.Members = stayed
	group.WantNotified()
	for _, m := range stayed {
		m.Stop()
	}
	waitFor(t, func() bool { return listeners("*") == 0 })
	group.Members = nil
	group.Add()
	group.AwaitSubscribed()
	if n := listeners("*"); n != 1 {
		t.Errorf("one instance listens on %d connections, want 1", n)
	}
}

func TestListen_ReconnectsAfterACut(t *testing.T) {
	t.Parallel()
	store, listeners := openListening(t, listenAuto)
	group := sessiontest.NewListeners(t, store, store, 40)
	for range 3 {
		group.AwaitSubscribed()
		if n := listeners("pg_terminate_backend(pid)"); n != 1 {
			t.Errorf("%d connections were cut, want 1", n)
		}
		group.WantNotified()
	}
}

// TestListen_TracksInstancesWhileDisconnected makes instances join and leave while there
// is no connection. Those that joined are notified, those that left are not.
func TestListen_TracksInstancesWhileDisconnected(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	proxy := storetest.NewProxy(t, server.Address)
	store, listeners := openListening(t, proxy.Address)
	group := sessiontest.NewListeners(t, store, store, 40)
	group.AwaitSubscribed()
	proxy.SetFault(storetest.Fault{Reject: true})
	proxy.Cut()
	gone := group.Members[:20]
	for _, m := range gone {
		m.Stop()
	}
	group.Members = group.Members[20:]
	for range 20 {
		group.Add()
	}
	group.WantNotified() // by polling
	proxy.Heal()
	waitFor(t, func() bool { return listeners("*") == 1 })
	group.AwaitSubscribed()
	group.WantNotified()
	for _, m := range gone {
		before := m.Notified()
		m.Change()
		if m.Notified() > before {
			t.Error("an instance that left is notified")
		}
	}
}

func TestClose_EndsAllListeners(t *testing.T) {
	t.Parallel()
	store, listeners := openListening(t, listenAuto)
	group := sessiontest.NewListeners(t, store, store, 100)
	group.AwaitSubscribed()
	if n := listeners("*"); n != 1 {
		t.Errorf("100 instances listen on %d connections, want 1", n)
	}
	store.Close()
	group.WantEnd(errClosed)
	waitFor(t, func() bool { return listeners("*") == 0 })
}

func TestSubscription_ListensOnlyForPresentInstances(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	c, err := store.connectListener(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	s := newSubscription(&listener{store: store}, c)
	for _, step := range []struct {
		joined, left []string
		want         int
	}{
		{[]string{"a", "b", "c"}, nil, 3},
		{[]string{"b"}, nil, 3}, // has a listener already
		{[]string{"d"}, []string{"a", "c", "never came"}, 2},
		{[]string{"b", "d"}, []string{"b"}, 2}, // left, and joined again
		{nil, []string{"b", "d"}, 0},
	} {
		if err := s.change(ctx, step.joined, step.left); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := c.QueryRow(ctx, "SELECT count(*) FROM pg_listening_channels()").Scan(&n); err != nil || n != step.want {
			t.Errorf("%d channels after %+v, %v", n, step, err)
		}
		if len(s.channels) != step.want || len(s.instances) != step.want {
			t.Errorf("%d instances and %d channels are known after %+v", len(s.channels), len(s.instances), step)
		}
	}
}
