package server_test

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/x/server"
)

// TestTokens_CannotEndLeasesOfANeighbour uses a token that knows everything in a neighbour's
// requests and listings: the session, the fence, even the key and the id. It cannot end any of
// the neighbour's leases.
func TestTokens_CannotEndLeasesOfANeighbour(t *testing.T) {
	t.Parallel()
	acquire := func(name string) server.Token {
		return server.Token{Name: name, Hash: server.HashToken(name), Verbs: []server.Verb{server.Read, server.Acquire}}
	}
	s := start(t, server.Options{Tokens: []server.Token{acquire("a"), acquire("b")}})
	victim := sessiontest.Begin(t, s.store("?token=a"), "db", protocol.Config{Capacity: 3})
	lease := victim.Granted(1, sessiontest.Acquire(1, 1))[0]
	s.auth = "a"
	granted := s.want(201, "POST", "/v1/semaphores/db/leases", "")

	neighbour := s.store("?token=b")
	for _, owner := range []protocol.Owner{{}, {Key: protocol.NewKey()}, sessiontest.Owner, {Key: sessiontest.Owner.Key, Principal: "token:a"}} {
		for _, b := range []protocol.Batch{{End: true}, {Ops: []protocol.Op{sessiontest.Release(lease)}}, {}} {
			b.Session, b.Owner, b.Seq = victim.ID, owner, 1000
			if r, err := neighbour.Apply(t.Context(), "db", b); err != nil || r.Status != protocol.Unknown {
				t.Errorf("%+v: status %d, %v; want the reply for an unknown session", b, r.Status, err)
			}
		}
	}
	s.auth = "b"
	at := granted.header.Get("Location")
	s.want(410, "PUT", at, "")
	s.want(410, "DELETE", at, "")
	s.want(403, "POST", granted.revoke(), "")
	if listing := s.want(200, "GET", "/v1/semaphores/db", ""); strings.Contains(listing.text, granted.lease()) {
		t.Errorf("the listing contains the id of a lease: %s", listing.text)
	}
	s.auth = "a"
	s.want(200, "PUT", at, "")
	victim.Send(sessiontest.Release(lease))
}
