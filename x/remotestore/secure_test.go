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
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest"
)

// inspectAt asks a service for a semaphore that does not exist, and returns the error.
func inspectAt(t *testing.T, at string) error {
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
	if err := inspectAt(t, at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", at, err)
	}
}

func TestOpen_TLS(t *testing.T) {
	t.Parallel()
	authority, otherCA := storetest.NewAuthority(t), storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "client")
	backend := memstore.New()
	secure := serve(t, backend, serving{secure: authority}).address
	mutual := serve(t, backend, serving{secure: authority, wantCert: true}).address
	plain := serve(t, backend, serving{}).address

	wantReached(t, "semas://"+secure+"?ca="+authority.File)
	wantReached(t, "semas://"+mutual+"?ca="+authority.File+"&cert="+cert+"&key="+key)
	expired := serve(t, backend, serving{secure: authority, issue: authority.IssueExpired}).address
	renamed := serve(t, backend, serving{secure: authority, issue: func(t storetest.TB, name string) (cert, key string) {
		return authority.IssueFor(t, name, "sema.example")
	}}).address
	otherCert, otherKey := otherCA.Issue(t, "client")
	query := "?ca=" + authority.File
	for at, want := range map[string]string{
		"semas://" + secure:                         "unknown authority); set ca= to",
		"semas://" + secure + "?ca=" + otherCA.File: "unknown authority",
		"semas://" + mutual + query:                 "requires a client certificate (certificate required); set cert= and key=",
		"semas://" + mutual + query + "&cert=" + otherCert + "&key=" + otherKey: "rejects the client certificate",
		"semas://" + expired + query: "has expired, on ",
		"semas://" + renamed + query: "is for sema.example, and not for 127.0.0.1",
		"semas://" + plain + query:   "does not use TLS on this port; use sema://",
		"sema://" + secure:           "uses TLS on this port, and the client does not; use semas://",
		"sema://" + mutual:           "use semas://",
	} {
		err := inspectAt(t, at)
		storetest.WantError(t, err, "cannot reach the sema service at 127.0.0.1:", want)
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, fleet.FaultTLS) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestOpen_ChecksAtOnce(t *testing.T) {
	t.Parallel()
	server := serve(t, memstore.New(), serving{wrap: requireToken(func() string { return "hush" })})
	unresponsive, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections and never replies
	if err != nil {
		t.Fatal(err)
	}
	defer unresponsive.Close()
	for at, want := range map[string]struct {
		fault fleet.Fault
		text  string
	}{
		"sema://nowhere.invalid":                     {fleet.FaultName, `name resolution failed: host "nowhere.invalid"`},
		"sema://127.0.0.1:1":                         {fleet.FaultConnection, "connection refused (hint: start it with sema serve)"},
		"sema://127.0.0.1:1,127.0.0.1:2":             {fleet.FaultConnection, "127.0.0.1:1, 127.0.0.1:2"},
		"sema://" + server.address + "?token=hushed": {fleet.FaultAccess, "rejects the token (source: token=… or SEMA_TOKEN)"},
		"sema://" + unresponsive.Addr().String():     {"", "did not reply"},
	} {
		began := time.Now()
		store, err := fleet.OpenStore(ctx, at)
		if err == nil {
			store.Close()
		}
		storetest.WantError(t, err, want.text)
		if fleet.FaultOf(err) != want.fault {
			t.Errorf("%s: fault %q, want %q", at, fleet.FaultOf(err), want.fault)
		}
		if took := time.Since(began); took > 30*time.Second { // 5s, plus delays on a busy machine
			t.Errorf("%s took %v", at, took)
		}
		lazy := at + map[bool]string{true: "&", false: "?"}[strings.Contains(at, "?")] + "open=lazy"
		if store, err = fleet.OpenStore(ctx, lazy); err != nil {
			t.Fatal(err)
		}
		store.Close()
	}
	for _, at := range []string{"?token=hush", "?token=reader"} { // reader is a known token that does not allow Ping
		store, err := fleet.OpenStore(ctx, "sema://"+server.address+at)
		if err != nil {
			t.Fatal(err)
		}
		store.Close()
	}
	store, err := fleet.OpenStore(ctx, "sema://127.0.0.1:1,"+server.address+"?token=hush")
	if err != nil {
		t.Fatalf("one of two servers is up: %v", err)
	}
	store.Close()
}

// requireToken returns middleware that checks tokens.
func requireToken(token func() string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch shown := r.Header.Get("Authorization"); {
			case shown == "":
				http.Error(w, "no token", http.StatusUnauthorized)
			case shown == "Bearer reader":
				http.Error(w, "not allowed with this token", http.StatusForbidden)
			case shown != "Bearer "+token():
				http.Error(w, "wrong token", http.StatusUnauthorized)
			default:
				next.ServeHTTP(w, r)
			}
		})
	}
}

func TestOpen_Tokens(t *testing.T) {
	t.Setenv(TokenVariable, "")
	server := serve(t, memstore.New(), serving{wrap: requireToken(func() string { return "hush" })})
	at := "sema://" + server.address
	wantReached(t, at+"?token=hush")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("hushed-too"), 0o600); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]struct{ facts, hint string }{
		"":                    {"requires a token, and this client has none", "set SEMA_TOKEN, or token_file="},
		"?token=hushed":       {"rejects the token (source: token=… or SEMA_TOKEN)", "check that SEMA_TOKEN, or token= in the URL, is a whole token of this service"},
		"?token_file=" + file: {"rejects the token (source: token_file=" + file, "check that " + file + " contains a whole token of this service"},
		"?token=reader":       {"denies this operation", "ask the operator of the service for a token that allows this"},
	} {
		err := inspectAt(t, at+query)
		storetest.WantError(t, err, want.facts, server.address)
		if !errors.Is(err, fs.ErrPermission) || !errors.Is(err, fleet.FaultAccess) || errors.Is(err, sema.ErrUnavailable) {
			t.Errorf("%q: %v", query, err)
		}
		if hint := sema.Hint(err); !strings.HasPrefix(hint, want.hint) || strings.Contains(err.Error()+hint, "hush") {
			t.Errorf("%q: %v, hint %q, want %q", query, err, hint, want.hint)
		}
	}
	t.Setenv(TokenVariable, "hush")
	wantReached(t, at)
}

// TestToken_IsReplaced replaces the token while a program runs. The store reads the file
// again, for calls and for Listen.
func TestToken_IsReplaced(t *testing.T) {
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
	server := serve(t, memstore.New(), serving{wrap: requireToken(func() string { return *valid.Load() }), heartbeat: 10 * time.Millisecond, lifetime: 50 * time.Millisecond})
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
		t.Fatalf("%v with the replaced token", err)
	}
	write("second")
	if err := apply(2); err != nil {
		t.Error(err)
	}
	notified := make(chan string, 100)
	listening := goListen(t, store, "me", func(name string) { notified <- name })
	defer listening.stop()
	await(t, "it has begun several streams", func() bool { return len(notified) > 2 })
	replace("third")
	write("third")
	for len(notified) > 0 {
		<-notified
	}
	await(t, "it has begun streams with the new token", func() bool { return len(notified) > 2 })
}
