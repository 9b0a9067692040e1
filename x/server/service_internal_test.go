package server

import (
	"context"
	"errors"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// TestStoreAPI_ClientsSetNoIdentity checks that a Go client cannot set what servers store with a
// lease: the identity of another client, or its idempotency key.
func TestStoreAPI_ClientsSetNoIdentity(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		a, owner := storeAPI{s}, protocol.Owner{Key: protocol.NewKey()}
		session, _, err := a.Open(t.Context(), "db", protocol.Config{Protocol: protocol.Version}, protocol.Opener{Client: protocol.Client{Instance: "me", Kind: "program"}, Owner: owner, MustExist: true})
		if err != nil {
			t.Fatal(err)
		}
		claim := protocol.Details{Site: "main.go:7", Labels: "job=a", Holder: "me", By: "ops", Key: "00112233445566778899aabb"}
		sent := claim
		ops := []protocol.Op{{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Details: &sent}}
		if _, err := a.Apply(t.Context(), "db", protocol.Batch{Session: session, Owner: owner, Seq: 1, Ops: ops}); err != nil {
			t.Fatal(err)
		}
		now, err := s.info(t.Context(), "db", page{})
		if err != nil || len(now.Holders) != 1 {
			t.Fatal(now, err)
		}
		if h := now.Holders[0]; h.By != "" || h.Holder != "me" || h.Site != "main.go:7" || h.Labels != "job=a" || h.Instance != "me" {
			t.Errorf("%+v", h)
		}
		stored, err := store.Inspect(t.Context(), "db")
		if err != nil || stored.Leases[0].Details.Key != "" {
			t.Errorf("%+v, %v", stored.Leases, err)
		}
		if ops[0].Details != &sent || sent != claim {
			t.Error("the batch of the client was modified")
		}
	})
}

// Administer changes a semaphore right before it is deleted, while racing is set.
func (c *countingStore) Administer(ctx context.Context, name string, command fleet.Command) error {
	if command.Delete && c.racing.Load() {
		now, err := c.Inspect(ctx, name)
		if err != nil {
			return err
		}
		now.Config.Capacity++
		if err := c.Store.Administer(ctx, name, fleet.Command{Configure: &now.Config}); err != nil {
			return err
		}
	}
	return c.Store.Administer(ctx, name, command)
}

// TestDelete_IsConditionalInTheStore checks that a semaphore that was changed after its version was
// checked is not deleted.
func TestDelete_IsConditionalInTheStore(t *testing.T) {
	serviceOver(t, func(t *testing.T, s *service, store *countingStore) {
		store.racing.Store(true)
		before, err := s.info(t.Context(), "db", page{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.delete(t.Context(), "db", conditions{version: before.Version}); !errors.Is(err, protocol.ErrConflict) {
			t.Errorf("%v", err)
		}
		if now, err := s.info(t.Context(), "db", page{}); err != nil || now.Capacity != before.Capacity+1 {
			t.Errorf("%+v, %v", now.summary, err)
		}
		if err := s.delete(t.Context(), "db", conditions{}); err != nil {
			t.Error(err)
		}
	})
}
