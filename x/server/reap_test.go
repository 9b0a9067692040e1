package server_test

import (
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
	"github.com/sema-go/sema/x/server"
)

// TestServer_FreesExpiredPermitsOverASharedStore kills a client that has acquired through a service
// over Redis, in Go or over HTTP. Its permit is freed although no client asks for one. The test
// reads the keys of Redis, because a request to the store or the service would free the permit.
func TestServer_FreesExpiredPermitsOverASharedStore(t *testing.T) {
	t.Parallel()
	for name, acquire := range map[string]func(t *testing.T, s *site){
		"a Go client": func(t *testing.T, s *site) {
			sessiontest.Begin(t, s.store(""), "db", protocol.Config{Capacity: 1, TTL: 1_000_000}).Granted(1, sessiontest.Acquire(1, 1))
		},
		"a client over HTTP": func(t *testing.T, s *site) {
			s.want(201, "POST", "/v1/semaphores/db/leases?capacity=1&ttl=1s", "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			store, err := fleet.OpenStore(t.Context(), redis.URL())
			if err != nil {
				t.Fatal(err)
			}
			s := open(t, store, server.Options{})
			acquire(t, s)
			leases := "{sema:db}:leases"
			if held := redis.Must("ZCARD", leases); held != "1" {
				t.Fatalf("%s leases in %s, want 1", held, leases)
			}
			waitFor(t, "the permit is free", func() bool { return redis.Must("ZCARD", leases) == "0" })
		})
	}
}
