package pgstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// secureServer starts a server with TLS, whose certificate the authority issues. The
// server reads copies of the files, as it runs as another user.
func secureServer(t *testing.T, authority *storetest.Authority, issue func(storetest.TB, string) (cert, key string)) *pgtest.Server {
	t.Helper()
	cert, key := issue(t, "server")
	directory := storetest.Directory(t, "postgres")
	settings := []string{"ssl=on"}
	for setting, file := range map[string]string{"ssl_cert_file": cert, "ssl_key_file": key, "ssl_ca_file": authority.File} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(directory, setting)
		if err := os.WriteFile(copied, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if os.Getuid() == 0 {
			chownToPostgres(t, copied)
		}
		settings = append(settings, setting+"="+copied)
	}
	return pgtest.Start(t, settings...)
}

// chownToPostgres changes the owner of a file to the user that runs the server.
func chownToPostgres(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

// wantFault fails the test unless opening a store fails with that fault and text.
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
}

func TestOpen_DistinguishesTLSFaults(t *testing.T) {
	t.Parallel()
	authority, other := storetest.NewAuthority(t), storetest.NewAuthority(t)
	at := func(s *pgtest.Server, query string) string {
		u := s.URLOf("postgres", "postgres")
		u.RawQuery = query
		return u.String()
	}
	trust := "sslmode=verify-full&sslrootcert=" + authority.File
	server := secureServer(t, authority, authority.Issue)
	store, err := fleet.OpenStore(ctx, at(server, trust))
	if err != nil {
		t.Fatal(err)
	}
	store.Close()
	wantFault(t, at(pgtest.Shared.Server(t), trust), fleet.FaultTLS, "does not use TLS on this port; set sslmode=disable, or ssl=on on the server")
	wantFault(t, at(server, "sslmode=verify-full&sslrootcert="+other.File), fleet.FaultTLS, "unknown authority); set sslrootcert=")
	wantFault(t, at(secureServer(t, authority, authority.IssueExpired), trust), fleet.FaultTLS, "has expired, on ")
	renamed := secureServer(t, authority, func(t storetest.TB, name string) (cert, key string) {
		return authority.IssueFor(t, name, "db.example")
	})
	wantFault(t, at(renamed, trust), fleet.FaultTLS, "is for db.example, and not for 127.0.0.1")
}

func TestErrors_HaveTheirFaults(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	openAt(t, server.URL(), Options{})
	wantFault(t, "postgres://u@nowhere.invalid/d", fleet.FaultName, "name resolution failed")
	wantFault(t, "postgres://u@127.0.0.1:1/d?sslmode=disable", fleet.FaultConnection, "connection refused")
	wantFault(t, server.URLOf("absent", "postgres").String(), fleet.FaultAccess, "check user and password")
	preferred := server.URLOf("absent", "postgres")
	preferred.RawQuery = "" // sslmode=prefer, the default: an attempt with TLS, which this server rejects, and one without
	wantFault(t, preferred.String(), fleet.FaultAccess, `postgres `+server.Address+`/postgres: FATAL: role "absent" does not exist (SQLSTATE 28000); check user and password`)
	standby := server.Standby(t)
	store := openAt(t, standby.URL(), Options{})
	_, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 1, TTL: sessiontest.TTL, Protocol: protocol.Version}, sessiontest.Opener("i"))
	if !errors.Is(err, fleet.FaultReadOnly) || !errors.Is(err, sema.ErrUnavailable) {
		t.Errorf("a standby: %v", err)
	}
	store.Close()
	all := fmt.Sprintf("postgres://postgres@/postgres?host=127.0.0.1,127.0.0.1&port=%d,%d&target_session_attrs=read-write", server.Port, standby.Port)
	server.Stop()
	wantFault(t, all, fleet.FaultReadOnly, "no server accepts changes: promote a standby, start the primary, or set default_transaction_read_only to off (")
}
