package leasing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// forge returns IDs that a reader of listings, or the bearer of another ID, could construct for
// the leases of a semaphore.
func forge(t *testing.T, store fleet.Store, known string) (ids []string) {
	t.Helper()
	s, err := store.Inspect(t.Context(), "db")
	wantErr(t, err, nil)
	proof := known[strings.LastIndex(known, ".")+1:]
	for _, l := range s.Leases {
		for _, proof := range []string{proof, strings.Repeat("0", len(proof))} {
			if id := fmt.Sprintf("%d.%d.%s", l.Seq, l.Session, proof); id != known {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// TestManager_IDsCannotBeForged checks that an ID cannot be guessed, whatever a client knows about
// sessions and leases, and whether or not the manager has granted the lease itself.
func TestManager_IDsCannotBeForged(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		elsewhere := leasing.New(store)
		defer elsewhere.Close()
		request := leasing.Request{Semaphore: "db", Weight: 1, Config: protocol.Config{Capacity: 3, TTL: 10_000_000}}
		old, err := m.Acquire(t.Context(), request)
		wantErr(t, err, nil)
		wantErr(t, m.Release(t.Context(), "", "db", old.ID), nil)
		victim, err := m.Acquire(t.Context(), request) // in the session that served the attacker before
		wantErr(t, err, nil)
		if session := strings.Split(old.ID, ".")[1]; !strings.Contains(victim.ID, "."+session+".") {
			t.Fatalf("%s and %s have different sessions, want the same session for both", old.ID, victim.ID)
		}
		for _, id := range forge(t, store, old.ID) {
			if id == victim.ID {
				t.Fatalf("%s was forged", id)
			}
			for _, at := range []*leasing.Manager{m, elsewhere} {
				_, err := at.Renew(t.Context(), "", "db", id)
				wantErr(t, err, sema.ErrLost)
				wantErr(t, at.Release(t.Context(), "", "db", id), sema.ErrLost)
			}
		}
		_, err = elsewhere.Renew(t.Context(), "", "db", victim.ID)
		wantErr(t, err, nil)
	})
}

// TestManager_LeasesBelongToTheirPrincipal checks that a principal cannot use the ID of another
// one, which it may have read in a log.
func TestManager_LeasesBelongToTheirPrincipal(t *testing.T) {
	run(t, func(t *testing.T, store fleet.Store, m *leasing.Manager) {
		elsewhere := leasing.New(store)
		defer elsewhere.Close()
		request := leasing.Request{Semaphore: "db", Weight: 1, Principal: "token:a", Key: "job 1", Config: protocol.Config{Capacity: 3, TTL: 10_000_000}}
		lease, err := m.Acquire(t.Context(), request)
		wantErr(t, err, nil)
		for _, at := range []*leasing.Manager{m, elsewhere} {
			for _, other := range []string{"", "token:b"} {
				_, err := at.Renew(t.Context(), other, "db", lease.ID)
				wantErr(t, err, sema.ErrLost)
				wantErr(t, at.Release(t.Context(), other, "db", lease.ID), sema.ErrLost)
			}
			_, err := at.Renew(t.Context(), "token:a", "db", lease.ID)
			wantErr(t, err, nil)
		}
		request.Principal = "token:b" // with the same key
		other, err := elsewhere.Acquire(t.Context(), request)
		wantErr(t, err, nil)
		if other.ID == lease.ID {
			t.Error("two principals that use the same key share a lease")
		}
		request.Principal = "token:a"
		again, err := elsewhere.Acquire(t.Context(), request)
		wantErr(t, err, nil)
		if again.ID != lease.ID {
			t.Errorf("the same request gets %s, want %s", again.ID, lease.ID)
		}
	})
}
