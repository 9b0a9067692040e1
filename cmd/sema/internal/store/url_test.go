package store

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/host"
)

func parse(t *testing.T, raw string) URL {
	t.Helper()
	u, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestURL_StringHasNoSecrets(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                            "host:",
		"host:":                       "host:",
		"host:?dir=/x&group=build":    "host: dir=/x&group=build",
		"mem:":                        "mem:",
		"sqlite:relative.db?prefix=a": "sqlite:relative.db",
		"sqlite:///var/lib/a.db":      "sqlite:///var/lib/a.db",
		"redis://user:secret@h:1/0?sentinel_password=pst": "redis://h:1/0",
		"postgres://u:secret@h/db?password=secret":        "postgres://h/db",
		"me:secret@host": "me:…@host",
	} {
		if got := parse(t, raw).String(); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
	}
}

func TestParse_RejectsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"redis://%zz:secret@h", "/tmp/x", "//me:secret@host", "redis://me:secret@h:port"} {
		_, err := Parse(raw)
		if exit.Code(err) != exit.Usage || strings.Contains(err.Error(), "secret") || !strings.Contains(sema.Hint(err), "redis://") {
			t.Errorf("%s: %v, hint %q", raw, err, sema.Hint(err))
		}
	}
}

func TestURL_Kinds(t *testing.T) {
	t.Parallel()
	type kinds struct {
		Host, Memory, Postgres, Embedded, Own bool
		File                                  string
	}
	for raw, want := range map[string]kinds{
		"":                        {Host: true, Own: true},
		"host:/dir":               {Host: true},
		"mem:":                    {Memory: true, Embedded: true},
		"sqlite:///a/b%20c.db?x=": {Embedded: true, File: "/a/b c.db"},
		"sqlite:a%20b.db":         {Embedded: true, File: "a b.db"},
		"postgresql://h/db":       {Postgres: true},
		"redis://h/0":             {},
	} {
		u := parse(t, raw)
		if got := (kinds{u.IsHost(), u.IsMemory(), u.IsPostgres(), u.IsEmbedded(), u.IsOwnDirectory(), u.File()}); got != want {
			t.Errorf("%q: %+v, want %+v", raw, got, want)
		}
	}
}

func TestForFile_RoundTrip(t *testing.T) {
	t.Parallel()
	const path = "/home/50% done?/sema.db"
	if u := parse(t, ForFile(path)); u.File() != path {
		t.Errorf("%s is the file %s", u, u.File())
	}
}

func TestURL_HostOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, raw := range []string{"host:?dir=" + dir, "host:" + dir} {
		opts, err := parse(t, raw).HostOptions()
		if err != nil {
			t.Fatal(err)
		}
		if where, err := host.Where(opts...); where != dir || err != nil {
			t.Errorf("%s, %v", where, err)
		}
	}
	for _, raw := range []string{"host:?dir=a&dir=b", "host:?colour=blue", "host:?%zz", "host://h/", "host:opaque"} {
		if _, err := parse(t, raw).HostOptions(); exit.Code(err) != exit.Usage {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestURL_Servers(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]Server{
		"mem:": nil, "sqlite:///a.db": nil, "host:": nil, "sema://": nil,
		"redis://h":                             {{"tcp", "h:6379"}},
		"redis://h?sentinel=main":               {{"tcp", "h:26379"}},
		"rediss://h:1?addrs=i,j:2":              {{"tcp", "h:1"}, {"tcp", "i:6379"}, {"tcp", "j:2"}},
		"etcd://a,b:1":                          {{"tcp", "a:2379"}, {"tcp", "b:1"}},
		"postgres:///db?host=/run&port=1":       {{"unix", "/run/.s.PGSQL.1"}},
		"postgres:///db?host=[::1],h&port=1,22": {{"tcp", "[::1]:1"}, {"tcp", "h:22"}},
		"sema://h:7362":                         {{"tcp", "h:7362"}},
	} {
		if got := parse(t, raw).Servers(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", raw, got, want)
		}
	}
}

func TestUnreached_ExitCode(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	if err := Unreached(cause); exit.Code(err) != exit.Unavailable || !errors.Is(err, cause) || err.Error() != cause.Error() {
		t.Errorf("%v: exit code %d", err, exit.Code(err))
	}
	if err := Unreached(exit.Misuse("nonsense")); exit.Code(err) != exit.Usage {
		t.Errorf("an error with its own exit code gets %d", exit.Code(err))
	}
	if err := Unreached(nil); err != nil {
		t.Error(err)
	}
}

// TestUnreached_Denial checks that a store that denies an operation counts as reached: waiting
// does not help, and the hint for a store that cannot be reached misleads.
func TestUnreached_Denial(t *testing.T) {
	t.Parallel()
	denied := fmt.Errorf("drain: %w", fs.ErrPermission)
	if err := Unreached(denied); err != denied || errors.Is(err, sema.ErrUnavailable) || sema.Hint(err) != "" || exit.Code(err) != exit.Denied {
		t.Errorf("%v: hint %q, exit code %d", err, sema.Hint(err), exit.Code(err))
	}
}
