package remotestore

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// look asks a service for a semaphore that is not there.
func look(t *testing.T, at string) error {
	t.Helper()
	client, err := fleet.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Inspect(limited(t, 20*time.Second), "a")
	if err := client.Close(ctx); err != nil {
		t.Error(err)
	}
	return err
}

func wantReached(t *testing.T, at string) {
	t.Helper()
	if err := look(t, at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", at, err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	authority, stranger := enginetest.NewAuthority(t), enginetest.NewAuthority(t)
	cert, key := authority.Issue(t, "client")
	engine := memstore.New()
	secure := serve(t, engine, serving{secure: authority}).address
	mutual := serve(t, engine, serving{secure: authority, wantCert: true}).address
	plain := serve(t, engine, serving{}).address

	wantReached(t, "semas://"+secure+"?ca="+authority.File)
	wantReached(t, "semas://"+mutual+"?ca="+authority.File+"&cert="+cert+"&key="+key)
	for at, want := range map[string]string{
		"semas://" + secure:                           "unknown authority; is its authority the one in ca=?",
		"semas://" + secure + "?ca=" + stranger.File:  "unknown authority",
		"semas://" + mutual + "?ca=" + authority.File: "want cert= and key=?",
		"semas://" + plain + "?ca=" + authority.File:  "does not speak TLS; use sema://",
		"sema://" + secure:                            "without TLS?",
	} {
		err := look(t, at)
		wantError(t, err, want)
		if !errors.Is(err, sema.ErrUnavailable) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// guard is a check of tokens as a service may have it.
func guard(token func() string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch shown := r.Header.Get("Authorization"); {
			case shown == "":
				http.Error(w, "no token", http.StatusUnauthorized)
			case shown == "Bearer reader":
				http.Error(w, "not with this one", http.StatusForbidden)
			case shown != "Bearer "+token():
				http.Error(w, "wrong token", http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	t.Setenv(TokenVariable, "")
	server := serve(t, memstore.New(), serving{wrap: guard(func() string { return "hush" })})
	at := "sema://" + server.address
	wantReached(t, at+"?token=hush")
	for query, want := range map[string]string{
		"":              "does not know the token (from nowhere)",
		"?token=hushed": "check token_file=, token= or SEMA_TOKEN",
		"?token=reader": "does not allow that",
	} {
		err := look(t, at+query)
		wantError(t, err, want, server.address)
		if !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", query, err)
		}
	}
	t.Setenv(TokenVariable, "hush")
	wantReached(t, at)
}

// TestATokenIsReplaced while a program runs: the file is read again, for calls and
// for hints.
func TestATokenIsReplaced(t *testing.T) {
	t.Parallel()
	var valid atomic.Pointer[string]
	replace := func(token string) { valid.Store(&token) }
	replace("first")
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	server := serve(t, memstore.New(), serving{wrap: guard(func() string { return *valid.Load() }), heartbeat: 10 * time.Millisecond, lifetime: 50 * time.Millisecond})
	store := openBy(t, Options{Hosts: []string{server.address}, TokenFile: file})
	id := open(t, store, "a", protocol.Config{Capacity: 1})
	apply := func(seq uint64) error {
		_, err := store.Apply(ctx, "a", protocol.Batch{Owner: sessiontest.Owner, Session: id, Seq: seq})
		return err
	}
	if err := apply(1); err != nil {
		t.Fatal(err)
	}
	replace("second")
	if err := apply(2); !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("%v with the token of before", err)
	}
	write("second")
	if err := apply(2); err != nil {
		t.Error(err)
	}
	hinted := make(chan string, 100)
	listening := goListen(t, store, "me", func(name string) { hinted <- name })
	defer listening.stop()
	await(t, "it is told again and again that it listens anew", func() bool { return len(hinted) > 2 })
	replace("third")
	write("third")
	for len(hinted) > 0 {
		<-hinted
	}
	await(t, "it listens with the new token", func() bool { return len(hinted) > 2 })
}
