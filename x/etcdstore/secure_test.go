package etcdstore

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestUsers: who may, who may not, and that passwords stay where they are.
func TestUsers(t *testing.T) {
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
	wantError(t, open("me", "hushh", "app/"), "user or password is wrong")
	wantError(t, open("me", "hush", "other/"), "permission", `"other/"`, "grant-permission")
	wantError(t, open("", "", "app/"), "wants a user")

	store := openBy(t, Options{Endpoints: server.Addresses(), User: "me", Password: "hush", Prefix: "app/"})
	s := sessiontest.Begin(t, store, "b", protocol.Config{Capacity: 1})
	s.Say(sessiontest.Release(s.Granted(1, sessiontest.Acquire(1, 1))[0]))
	if names, err := store.List(ctx, ""); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
}

// TestTLS has a server that wants a certificate before it listens to anybody.
func TestTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := enginetest.NewAuthority(t), enginetest.NewAuthority(t)
	server := etcdtest.StartTLS(t, authority)
	cert, key := authority.Issue(t, "client")
	for query, wrong := range map[string]string{
		"ca=" + authority.File + "&cert=" + cert + "&key=" + key: "",
		"ca=" + stranger.File + "&cert=" + cert + "&key=" + key:  "x509: certificate signed by unknown authority",
		"ca=" + authority.File: "remote error: tls: ", // how it goes on depends on the server's version
		"":                     "without TLS?",
	} {
		client, err := fleet.Open(ctx, "etcd://"+server.Nodes[0].Address+"/?"+query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Inspect(limited(t, 10*time.Second), "a")
		if wrong != "" {
			wantError(t, err, wrong)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("with %q: %v", query, err)
		}
		if err := client.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}
