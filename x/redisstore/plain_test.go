package redisstore

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestPlain_CountsReleasesOfTheBatch checks which batches of a full semaphore use the fast
// path: those that release enough before they acquire.
func TestPlain_CountsReleasesOfTheBatch(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openServer(t, server)
	edited := false
	store.program = assemble(func(part string) string {
		counted := strings.Replace(part, "if reply then return reply end", "if reply then call('INCR', 'plain') return reply end", 1)
		edited = edited || counted != part
		return counted
	})
	if !edited {
		t.Fatal("the program does not contain the line to edit")
	}
	plain := func() string { return server.Must("GET", "plain") }
	s := sessiontest.Begin(t, store, "db", protocol.Config{Capacity: 2})
	try := func(ticket protocol.Ticket, weight int64) protocol.Op {
		op := sessiontest.Acquire(ticket, weight)
		op.Try = true
		return op
	}
	lease := s.Granted(1, sessiontest.Acquire(1, 2))[0]
	before := plain()

	lease = s.Granted(1, sessiontest.Release(lease), sessiontest.Acquire(2, 2))[0]
	if after := plain(); after == before {
		t.Error("a release followed by an acquire of as much does not use the fast path")
	}
	sessiontest.WantHeld(t, store, "db", lease)

	before = plain()
	r := s.Send(try(3, 1), sessiontest.Release(lease), try(4, 2))
	if len(r.Results) != 2 || r.Results[0].Kind != protocol.Full || r.Results[1].Kind != protocol.Granted {
		t.Fatalf("a try before the release and one after it got %+v, want full and granted", r.Results)
	}
	if after := plain(); after != before {
		t.Error("an acquire before the release uses the fast path")
	}
	sessiontest.WantHeld(t, store, "db", r.Results[1].Lease)

	r = s.Send(sessiontest.Release(r.Results[1].Lease), try(5, 1), try(6, 2))
	if len(r.Results) != 2 || r.Results[0].Kind != protocol.Granted || r.Results[1].Kind != protocol.Full {
		t.Fatalf("tries for more than was released got %+v, want granted and full", r.Results)
	}
	if after := plain(); after != before {
		t.Error("a batch that acquires more than it releases uses the fast path")
	}
	sessiontest.WantHeld(t, store, "db", r.Results[0].Lease)
}
