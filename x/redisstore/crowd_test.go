package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// subscribed is how many channels each connection has that has some.
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

// awaitSubscribed waits for what subscribed says.
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

func TestAllWhoListenShareAConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	crowd := sessiontest.NewCrowd(t, store, store, 300)
	awaitSubscribed(t, server, "300")
	crowd.WantTold()
	gone, stayed := crowd.Members[:200], crowd.Members[200:]
	for _, m := range gone {
		m.Leave()
	}
	awaitSubscribed(t, server, "100")
	crowd.Members = stayed
	crowd.WantTold()
	for _, m := range stayed {
		m.Leave()
	}
	awaitSubscribed(t, server)
	crowd.Members = nil
	crowd.Join()
	awaitSubscribed(t, server, "1")
	crowd.WantTold()
	if n := strings.Count(server.Must("CLIENT", "LIST", "TYPE", "normal"), "name=sema"); n != 1 {
		t.Errorf("%d other connections are kept, want 1", n)
	}
}

func TestAllWhoListenAreHeardAgainAfterACut(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	crowd := sessiontest.NewCrowd(t, store, store, 40)
	for range 3 {
		awaitSubscribed(t, server, "40")
		if n := server.Must("CLIENT", "KILL", "TYPE", "pubsub"); n != "1" {
			t.Errorf("%s connections were cut, want 1", n)
		}
		awaitSubscribed(t, server, "40")
		crowd.WantTold()
	}
}

// TestWhoComesAndGoesWhileThereIsNoConnection: who came is heard when there is one
// again, and nobody is heard who has gone.
func TestWhoComesAndGoesWhileThereIsNoConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := enginetest.NewProxy(t, server.Address)
	crowd := sessiontest.NewCrowd(t, openAt(t, Options{Addresses: []string{proxy.Address}}), openServer(t, server), 40)
	awaitSubscribed(t, server, "40")
	proxy.SetFault(enginetest.Fault{Refuse: true})
	proxy.Cut()
	awaitSubscribed(t, server)
	for _, m := range crowd.Members[:20] {
		m.Leave()
	}
	crowd.Members = crowd.Members[20:]
	for range 30 {
		crowd.Join()
	}
	proxy.Heal()
	awaitSubscribed(t, server, "50")
	crowd.WantTold()
}

func TestCloseEndsAllWhoListen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	crowd := sessiontest.NewCrowd(t, store, openServer(t, server), 100)
	awaitSubscribed(t, server, "100")
	store.Close()
	crowd.WantEnd(errClosed)
	awaitSubscribed(t, server)
}
