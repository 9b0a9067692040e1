package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// subscribed returns the number of channels of each connection with subscriptions.
func subscribed(server *redistest.Server) (each []string) {
	for client := range strings.Lines(server.Must("CLIENT", "LIST", "TYPE", "pubsub")) {
		for _, field := range strings.Fields(client) {
			if n, found := strings.CutPrefix(field, "sub="); found {
				each = append(each, n)
			}
		}
	}
	return each
}

// awaitSubscribed waits until subscribed returns want.
func awaitSubscribed(t *testing.T, server *redistest.Server, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		each := subscribed(server)
		if fmt.Sprint(each) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("connections with %.200v channels, want %v", each, want)
		}
	}
}

func TestListen_SharesOneConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	group := sessiontest.NewListeners(t, store, store, 300)
	awaitSubscribed(t, server, "300")
	group.WantNotified()
	gone, stayed := group.Members[:200], group.Members[200:]
	for _, m := range gone {
		m.Stop()
	}
	awaitSubscribed(t, server, "100")
	group.Members = stayed
	group.WantNotified()
	for _, m := range stayed {
		m.Stop()
	}
	awaitSubscribed(t, server)
	group.Members = nil
	group.Add()
	awaitSubscribed(t, server, "1")
	group.WantNotified()
	if n := strings.Count(server.Must("CLIENT", "LIST", "TYPE", "normal"), "name=sema"); n != 1 {
		t.Errorf("%d other connections are open, want 1", n)
	}
}

func TestListen_NotifiesAllListenersAfterACut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	group := sessiontest.NewListeners(t, store, store, 40)
	for range 3 {
		awaitSubscribed(t, server, "40")
		if n := server.Must("CLIENT", "KILL", "TYPE", "pubsub"); n != "1" {
			t.Errorf("%s connections were cut, want 1", n)
		}
		awaitSubscribed(t, server, "40")
		group.WantNotified()
	}
}

// TestListen_TracksListenersWhileDisconnected checks that after a reconnection listeners
// that joined meanwhile are subscribed, and those that left are not.
func TestListen_TracksListenersWhileDisconnected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := storetest.NewProxy(t, server.Address)
	group := sessiontest.NewListeners(t, openAt(t, Options{Addresses: []string{proxy.Address}}), openServer(t, server), 40)
	awaitSubscribed(t, server, "40")
	proxy.SetFault(storetest.Fault{Reject: true})
	proxy.Cut()
	awaitSubscribed(t, server)
	for _, m := range group.Members[:20] {
		m.Stop()
	}
	group.Members = group.Members[20:]
	for range 30 {
		group.Add()
	}
	proxy.Heal()
	awaitSubscribed(t, server, "50")
	group.WantNotified()
}

func TestClose_EndsAllListeners(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	group := sessiontest.NewListeners(t, store, openServer(t, server), 100)
	awaitSubscribed(t, server, "100")
	store.Close()
	group.WantEnd(errClosed)
	awaitSubscribed(t, server)
}
