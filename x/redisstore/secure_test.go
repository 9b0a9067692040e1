package redisstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// wantFault fails unless opening a store returns an error with this fault and text.
func wantFault(t *testing.T, at string, fault fleet.Fault, text string) {
	t.Helper()
	within, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	store, err := fleet.OpenStore(within, at)
	if err == nil {
		store.Close()
		t.Errorf("%s was opened", at)
		return
	}
	if fleet.FaultOf(err) != fault || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: fault %q of %v, want %q and %q", at, fleet.FaultOf(err), err, fault, text)
	}
	if passes := fault != fleet.FaultAccess; errors.Is(err, sema.ErrUnavailable) != passes {
		t.Errorf("%s: %v is ErrUnavailable: %t", at, err, !passes)
	}
}

func TestOpen_DistinguishesTLSFaults(t *testing.T) {
	t.Parallel()
	server, ca := redistest.TLS(t)
	mutual, mutualCA := redistest.TLS(t)
	mutual.Must("CONFIG", "SET", "tls-auth-clients", "yes")
	plain, authority := redistest.Start(t), storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "client")
	secure := "rediss://" + server.Address + "?ca=" + ca
	wantFault(t, "redis://"+server.Address, fleet.FaultTLS, "uses TLS on this port, and the client does not; use rediss://")
	wantFault(t, "rediss://"+plain.Address+"?ca="+ca, fleet.FaultTLS, "does not use TLS on this port; use redis://")
	wantFault(t, "rediss://"+server.Address+"?ca="+authority.File, fleet.FaultTLS, "unknown authority); set ca=")
	wantFault(t, secure+"&server_name=redis.example", fleet.FaultTLS, "is for 127.0.0.1, and not for redis.example")
	wantFault(t, "rediss://"+mutual.Address+"?ca="+mutualCA, fleet.FaultTLS, "requires a client certificate")
	wantFault(t, "rediss://"+mutual.Address+"?ca="+mutualCA+"&cert="+cert+"&key="+key, fleet.FaultTLS, "rejects the client certificate")
	openURL(t, secure)

	cert, key = authority.IssueExpired(t, "server")
	server.Must("CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key)
	wantFault(t, "rediss://"+server.Address+"?ca="+authority.File, fleet.FaultTLS, "has expired, on ")
}

func TestOpen_DistinguishesFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "swordfish")
	wantFault(t, "redis://nowhere.invalid", fleet.FaultName, `name resolution failed: host "nowhere.invalid"`)
	wantFault(t, "redis://127.0.0.1:1", fleet.FaultConnection, "connection refused")
	wantFault(t, "redis://:wrong@"+server.Address, fleet.FaultAccess, "redis at "+server.Address+": unknown user or wrong password (reply: WRONGPASS ")
	wantFault(t, "redis://"+server.Address, fleet.FaultAccess, "redis at "+server.Address+": it requires a password: redis://user:password@host (reply: NOAUTH ")

	server.Pause()
	defer server.Continue()
	hung := "redis://:swordfish@" + server.Address
	wantFault(t, hung, fleet.FaultConnection, "it accepts connections, but did not reply in time")
	if _, err := fleet.OpenStore(ctx, hung); !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("a server that does not reply: %v, want ErrUnavailable", err)
	}
}
