package etcdstore

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// TestUsers_NeedPermission checks also that errors contain no passwords.
func TestUsers_NeedPermission(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	server.Etcdctl("user", "add", "root:toor")
	server.Etcdctl("user", "grant-role", "root", "root")
	server.Etcdctl("role", "add", "app")
	server.Etcdctl("role", "grant-permission", "app", "--prefix=true", "readwrite", "app/")
	server.Etcdctl("user", "add", "me:hush")
	server.Etcdctl("user", "grant-role", "me", "app")
	server.Etcdctl("auth", "enable")

	open := func(user, password, prefix string) error {
		store := openBy(t, Options{Endpoints: server.Addresses(), User: user, Password: password, Prefix: prefix})
		_, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 1, TTL: sessiontest.TTL}, sessiontest.Opener("me"))
		if err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("the password is in %q", err)
		}
		return err
	}
	if err := open("me", "hush", "app/"); err != nil {
		t.Error(err)
	}
	storetest.WantError(t, open("me", "hushh", "app/"), "user or password is wrong")
	storetest.WantError(t, open("me", "hush", "other/"), "permission", `"other/"`, "grant-permission")
	storetest.WantError(t, open("", "", "app/"), "wants a user")

	store := openBy(t, Options{Endpoints: server.Addresses(), User: "me", Password: "hush", Prefix: "app/"})
	s := sessiontest.Begin(t, store, "b", protocol.Config{Capacity: 1})
	s.Send(sessiontest.Release(s.Granted(1, sessiontest.Acquire(1, 1))[0]))
	if names, err := store.List(ctx, protocol.ListQuery{}); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// reach inspects a semaphore that does not exist.
func reach(t *testing.T, at string) error {
	t.Helper()
	client, err := fleet.Open(limited(t, 30*time.Second), at)
	if err != nil {
		return err
	}
	_, err = client.Info(limited(t, 30*time.Second), "a")
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
	return err
}

// TestOpen_DistinguishesTLSFaults uses a server that requires client certificates.
func TestOpen_DistinguishesTLSFaults(t *testing.T) {
	t.Parallel()
	authority, other := storetest.NewAuthority(t), storetest.NewAuthority(t)
	server, plain := etcdtest.StartTLS(t, authority), etcdtest.Shared.Server(t)
	cert, key := authority.Issue(t, "client")
	otherCert, otherKey := other.Issue(t, "client")
	secure, mine := "etcd://"+server.Nodes[0].Address+"/?", "&cert="+cert+"&key="+key
	check := func(at, want string) {
		t.Helper()
		err := reach(t, at)
		storetest.WantError(t, err, "cannot reach etcd at 127.0.0.1:", want)
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, fleet.FaultTLS) {
			t.Errorf("%s: %v", at, err)
		}
	}
	if err := reach(t, secure+"ca="+authority.File+mine); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	check(secure+"ca="+other.File+mine, "unknown authority); set ca=")
	check(secure+"ca="+authority.File, "requires a client certificate")
	check(secure+"ca="+authority.File+"&cert="+otherCert+"&key="+otherKey, "rejects the client certificate")
	check(secure, "uses TLS on this port, and the client does not; set tls=on or ca=")
	check("etcd://"+plain.Nodes[0].Address+"/?ca="+authority.File, "does not use TLS on this port; leave tls, ca, cert and key out of the URL")

	// The server reads its files again for each connection.
	authority.IssueExpired(t, "server")
	check(secure+"ca="+authority.File+mine, "has expired, on ")
	authority.IssueFor(t, "server", "etcd.example")
	check(secure+"ca="+authority.File+mine, "is for etcd.example, and not for 127.0.0.1")
	authority.Issue(t, "server")
}

func TestOpen_ChecksAtOnce(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	server.Etcdctl("user", "add", "root:toor")
	server.Etcdctl("user", "grant-role", "root", "root")
	server.Etcdctl("user", "add", "me:hush")
	server.Etcdctl("auth", "enable")
	address := server.Nodes[0].Address
	for at, want := range map[string]struct {
		fault fleet.Fault
		text  string
	}{
		"etcd://nowhere.invalid:1/":           {fleet.FaultName, `name resolution failed: host "nowhere.invalid"`},
		"etcd://127.0.0.1:1,127.0.0.1:2/":     {fleet.FaultConnection, "connection refused"},
		"etcd://" + address + "/":             {fleet.FaultAccess, "it wants a user"},
		"etcd://root:hushed@" + address + "/": {fleet.FaultAccess, "user or password is wrong"},
		"etcd://me:hush@" + address + "/":     {fleet.FaultAccess, "grant-permission"},
	} {
		store, err := fleet.OpenStore(limited(t, time.Minute), at)
		if err == nil {
			store.Close()
		}
		storetest.WantError(t, err, want.text)
		if fleet.FaultOf(err) != want.fault || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: fault %q of %v, want %q", at, fleet.FaultOf(err), err, want.fault)
		}
		if store, err = fleet.OpenStore(ctx, at+"?open=lazy"); err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	store, err := fleet.OpenStore(ctx, "etcd://root:toor@127.0.0.1:1,"+address+"/")
	if err != nil {
		t.Fatalf("one of two members is there: %v", err)
	}
	store.Close()
}

// TestOpen_ReportsThatThereIsNoMajority has a caller with less time than the check.
func TestOpen_ReportsThatThereIsNoMajority(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 2)
	cluster.Nodes[1].Kill()
	store, err := fleet.OpenStore(limited(t, 2*time.Second), cluster.URL())
	if err == nil {
		store.Close()
	}
	storetest.WantError(t, err, "does not reply", "a majority of its members is up")
	if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
