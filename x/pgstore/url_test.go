package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

func TestURL_IsParsed(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]Options{
		"postgres://u:p@h:1/d": {},
		"postgresql:///d?host=a,b&port=1,2&prefix=p:&sema_schema=s&sema_listen=h:5432&sema_poll=2s&sema_migrate=off&pool_max_conns=7": {
			Prefix: "p:", Schema: "s", Listen: "h:5432", Poll: 2 * time.Second, Unmigrated: true},
	} {
		u, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		rest, got, err := parse(u)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", given, got, err, want)
		}
		if strings.Contains(rest, "sema_") || strings.Contains(rest, "prefix") {
			t.Errorf("%s is passed on as %s", given, rest)
		}
	}
	for given, want := range map[string]string{
		"postgres://h/d?sema_shcema=x":                      `"sema_shcema" is not known; there are: prefix, sema_listen, sema_migrate, sema_poll, sema_schema`,
		"postgres://h/d?prefix=a&prefix=b":                  "given 2 times",
		"postgres://h/d?prefix=a%20b":                       "not allowed",
		"postgres://h/d?prefix=" + strings.Repeat("x", 201): "at most 200",
		"postgres://h/d?sema_schema=pg_x":                   "does not begin with pg_",
		"postgres://h/d?sema_poll=often":                    "want a duration",
		"postgres://h/d?sema_listen=yes":                    "host:port",
		"postgres://h/d?sema_migrate=no":                    "auto or off",
		"postgres://h:99999/d":                              "cannot be parsed",
		"postgres://h/d?default_query_exec_mode=x":          "cannot be parsed",
	} {
		_, err := fleet.Open(ctx, given)
		if !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", given, err, want)
		}
	}
}

func TestOpen_RejectsSettingsThatTheServerRejects(t *testing.T) {
	t.Parallel()
	_, err := fleet.Open(ctx, pgtest.Shared.Server(t).URL()+"&sneaky=1")
	if err == nil || !strings.Contains(err.Error(), "sneaky") {
		t.Error(err)
	}
}

// secret is a password that must not be in any error, log or String.
const secret = "s3cr3t-w0rd"

func TestErrors_HaveNoPassword(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	role := "secured"
	if _, err := server.Psql("postgres", "CREATE ROLE "+role+" LOGIN SUPERUSER PASSWORD '"+secret+"'"); err != nil {
		t.Fatal(err)
	}
	good := server.URLOf(role, "postgres")
	good.User = url.UserPassword(role, secret)
	store := openAt(t, good.String(), Options{Schema: newSchema()})
	texts := []string{store.String(), fmt.Sprint(store)}

	wrong := *good
	wrong.User = url.UserPassword(role, secret+"!")
	nowhere := *good
	nowhere.Host = "127.0.0.1:1"
	unknown := *good
	unknown.Host = "nowhere.invalid"
	for _, given := range []string{
		wrong.String(), nowhere.String(), unknown.String(), "postgres://u:" + secret + "@h:notaport/d", "postgres://u:" + secret + "@h/d?sslmode=x",
		"postgres://u:" + secret + "@h/d?sema_x=1", "postgres://h/d?password=" + secret + "&sslmode=x", "postgres://u:" + secret + "@h/d?%zz=1",
	} {
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := fleet.Open(within, given)
		cancel()
		if err == nil {
			t.Fatalf("%s was opened", given)
		}
		texts = append(texts, err.Error(), fmt.Sprintf("%+v", err), Migrate(ctx, given).Error())
	}
	for _, text := range texts {
		if strings.Contains(text, secret) {
			t.Errorf("the password is in %q", text)
		}
	}
}

func TestErrors_HaveAdvice(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	for given, want := range map[string]string{
		"postgres://u@127.0.0.1:1/d?sslmode=disable":                                  "cannot reach postgres at 127.0.0.1:1/d: connection refused",
		"postgres:///d?host=/nowhere&user=u":                                          "no such socket",
		"postgres://u@nowhere.invalid/d":                                              `host "nowhere.invalid" is unknown`,
		server.URLOf("postgres", "nothing").String():                                  "CREATE DATABASE",
		server.URLOf("absent", "postgres").String():                                   "check user and password",
		"postgres://u@127.0.0.1:1/d?connect_timeout=1&sslmode=disable&host=127.0.0.1": "cannot reach",
	} {
		within, cancel := context.WithTimeout(ctx, time.Minute)
		_, err := fleet.Open(within, given)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", given, err, want)
		}
		if strings.Contains(want, "cannot reach") && !errors.Is(err, sema.ErrUnavailable) {
			t.Errorf("%s: %v is not ErrUnavailable", given, err)
		}
	}
}

func TestOptions_PrefixSeparatesClients(t *testing.T) {
	t.Parallel()
	schema := newSchema()
	a, b := openIn(t, schema, Options{Prefix: "a:"}), openIn(t, schema, Options{Prefix: "b:"})
	sessiontest.Begin(t, a, "x", protocol.Config{Capacity: 1})
	if page, err := b.List(ctx, protocol.ListQuery{}); err != nil || len(page) != 0 {
		t.Error(page, err)
	}
	if page, err := a.List(ctx, protocol.ListQuery{}); err != nil || len(page) != 1 || page[0].Name != "x" {
		t.Error(page, err)
	}
}

// TestStore_KeepsAnyText stores texts of clients that PostgreSQL cannot store unchanged.
func TestStore_KeepsAnyText(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	texts := []string{"", "plain", "a\x00b", "\xff\xfe", `\x41`, `\`, "ü\n'\"%s{}", strings.Repeat("long ", 2000)}
	for _, text := range texts {
		by := sessiontest.Opener("instance " + text)
		by.Client.Kind, by.Client.Host, by.Client.Process = text, text, 4711
		if _, _, err := store.Open(ctx, "a", protocol.Config{Capacity: 100, TTL: sessiontest.TTL}, by); err != nil {
			t.Fatal(err)
		}
	}
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: 100})
	for i, text := range texts {
		details := &protocol.Details{Site: text, Labels: text, Holder: text, By: text, Key: text}
		s.Granted(1, protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(i + 1), Weight: 1, Details: details})
	}
	lease := s.Granted(1, sessiontest.Acquire(99, 1))[0]
	if err := store.Administer(ctx, "a", fleet.Command{Revoke: &fleet.Revocation{Lease: lease, Why: "a\x00b"}}); err != nil {
		t.Fatal(err)
	}
	if f := s.Send().Results; len(f) != 1 || f[0].Note != "revoked: a\x00b" {
		t.Errorf("results %+v", f)
	}
	snapshot, err := store.Inspect(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		if want := (protocol.Client{Instance: "instance " + text, Kind: text, Host: text, Process: 4711}); snapshot.Sessions[i].Client != want {
			t.Errorf("%+v became %+v", want, snapshot.Sessions[i].Client)
		}
		if want := (protocol.Details{Site: text, Labels: text, Holder: text, By: text, Key: text}); snapshot.Leases[i].Details != want {
			t.Errorf("%+v became %+v", want, snapshot.Leases[i].Details)
		}
	}
}
