package pgstore

import (
	"fmt"
	"testing"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// openHeard opens a store as a user of its own, by which its connections for
// listening can be told from others'; it listens by way of an address.
func openHeard(t *testing.T, at string) (s *Store, listeners func(of string) int64) {
	t.Helper()
	schema := newSchema()
	looker := openIn(t, schema, Options{})
	exec(t, looker, "CREATE ROLE "+schema+" SUPERUSER LOGIN")
	s = openAt(t, pgtest.Shared.Server(t).URLOf(schema, "postgres").String(), Options{Schema: schema, Listen: at})
	return s, func(of string) int64 {
		t.Helper()
		return count(t, looker, fmt.Sprintf("SELECT count(%s) FROM pg_stat_activity WHERE usename = '%s' AND application_name = '%s'", of, schema, listenerName))
	}
}

func TestAllWhoListenShareAConnection(t *testing.T) {
	t.Parallel()
	store, listeners := openHeard(t, listenAuto)
	crowd := sessiontest.NewCrowd(t, store, store, 300)
	crowd.Settle()
	crowd.WantTold()
	if n := listeners("*"); n != 1 {
		t.Errorf("300 instances listen on %d connections, want 1", n)
	}
	stayed := crowd.Members[200:]
	for _, m := range crowd.Members[:200] {
		m.Leave()
	}
	crowd.Members = stayed
	crowd.WantTold()
	for _, m := range stayed {
		m.Leave()
	}
	waitFor(t, func() bool { return listeners("*") == 0 })
	crowd.Members = nil
	crowd.Join()
	crowd.Settle()
	if n := listeners("*"); n != 1 {
		t.Errorf("one listens on %d connections", n)
	}
}

func TestAllWhoListenAreHeardAgainAfterACut(t *testing.T) {
	t.Parallel()
	store, listeners := openHeard(t, listenAuto)
	crowd := sessiontest.NewCrowd(t, store, store, 40)
	for range 3 {
		crowd.Settle()
		if n := listeners("pg_terminate_backend(pid)"); n != 1 {
			t.Errorf("%d connections were cut, want 1", n)
		}
		crowd.WantTold()
	}
}

// TestWhoComesAndGoesWhileThereIsNoConnection: who came is heard when there is one
// again, and nobody is heard who has gone.
func TestWhoComesAndGoesWhileThereIsNoConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	proxy := enginetest.NewProxy(t, server.Address)
	store, listeners := openHeard(t, proxy.Address)
	crowd := sessiontest.NewCrowd(t, store, store, 40)
	crowd.Settle()
	proxy.SetFault(enginetest.Fault{Refuse: true})
	proxy.Cut()
	gone := crowd.Members[:20]
	for _, m := range gone {
		m.Leave()
	}
	crowd.Members = crowd.Members[20:]
	for range 20 {
		crowd.Join()
	}
	crowd.WantTold() // by a look
	proxy.Heal()
	waitFor(t, func() bool { return listeners("*") == 1 })
	crowd.Settle()
	crowd.WantTold()
	for _, m := range gone {
		before := m.Told()
		m.GiveNews()
		if m.Told() > before {
			t.Error("who has gone is told")
		}
	}
}

func TestCloseEndsAllWhoListen(t *testing.T) {
	t.Parallel()
	store, listeners := openHeard(t, listenAuto)
	crowd := sessiontest.NewCrowd(t, store, store, 100)
	crowd.Settle()
	if n := listeners("*"); n != 1 {
		t.Errorf("100 instances listen on %d connections, want 1", n)
	}
	store.Close()
	crowd.WantEnd(errClosed)
	waitFor(t, func() bool { return listeners("*") == 0 })
}

func TestNothingIsHeardForThoseWhoHaveGone(t *testing.T) {
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
		{[]string{"b"}, nil, 3}, // where somebody listens already
		{[]string{"d"}, []string{"a", "c", "never came"}, 2},
		{[]string{"b", "d"}, []string{"b"}, 2}, // gone, and back again
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
