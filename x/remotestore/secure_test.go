package remotestore

import (
	"errors"
	"io/fs"
	"net"
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
	client, err := fleet.Open(limited(t, 20*time.Second), at)
	if err != nil {
		return err
	}
	_, err = client.Info(limited(t, 20*time.Second), "a")
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
	expired := serve(t, engine, serving{secure: authority, issue: authority.IssueExpired}).address
	renamed := serve(t, engine, serving{secure: authority, issue: func(t enginetest.TB, name string) (cert, key string) {
		return authority.IssueFor(t, name, "sema.example")
	}}).address
	strange, strangeKey := stranger.Issue(t, "client")
	trust := "?ca=" + authority.File
	for at, want := range map[string]string{
		"semas://" + secure:                          "unknown authority); set ca= to",
		"semas://" + secure + "?ca=" + stranger.File: "unknown authority",
		"semas://" + mutual + trust:                  "requires a client certificate (certificate required); set cert= and key=",
		"semas://" + mutual + trust + "&cert=" + strange + "&key=" + strangeKey: "rejects the client certificate",
		"semas://" + expired + trust: "has expired, on ",
		"semas://" + renamed + trust: "is for sema.example, and not for 127.0.0.1",
		"semas://" + plain + trust:   "does not use TLS on this port; use sema://",
		"sema://" + secure:           "uses TLS on this port, and the client does not; use semas://",
		"sema://" + mutual:           "use semas://",
	} {
		err := look(t, at)
		wantError(t, err, "cannot reach the sema service at 127.0.0.1:", want)
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, fleet.FaultTLS) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestOpen_ChecksAtOnce(t *testing.T) {
	t.Parallel()
	server := serve(t, memstore.New(), serving{wrap: guard(func() string { return "hush" })})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // which accepts, and never replies
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for at, want := range map[string]struct {
		fault fleet.Fault
		text  string
	}{
		"sema://nowhere.invalid":                     {fleet.FaultName, `name resolution failed: host "nowhere.invalid"`},
		"sema://127.0.0.1:1":                         {fleet.FaultConnection, "connection refused; is it running? start it with: sema serve"},
		"sema://127.0.0.1:1,127.0.0.1:2":             {fleet.FaultConnection, "127.0.0.1:1, 127.0.0.1:2"},
		"sema://" + server.address + "?token=hushed": {fleet.FaultAccess, "check token_file=, token= or SEMA_TOKEN"},
		"sema://" + silent.Addr().String():           {"", "does not answer"},
	} {
		began := time.Now()
		store, err := fleet.OpenStore(ctx, at)
		if err == nil {
			store.Close()
		}
		wantError(t, err, want.text)
		if fleet.FaultOf(err) != want.fault {
			t.Errorf("%s: fault %q, want %q", at, fleet.FaultOf(err), want.fault)
		}
		if took := time.Since(began); took > 30*time.Second { // 5 s, and what a busy machine takes
			t.Errorf("%s took %v", at, took)
		}
		lazy := at + map[bool]string{true: "&", false: "?"}[strings.Contains(at, "?")] + "open=lazy"
		if store, err = fleet.OpenStore(ctx, lazy); err != nil {
			t.Fatal(err)
		}
		store.Close()
	}
	for _, at := range []string{"?token=hush", "?token=reader"} { // which is known, and may not ping
		store, err := fleet.OpenStore(ctx, "sema://"+server.address+at)
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
	}
	store, err := fleet.OpenStore(ctx, "sema://127.0.0.1:1,"+server.address+"?token=hush")
	if err != nil {
		t.Fatalf("one of two servers is there: %v", err)
	}
	store.Close()
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
