package etcdstore

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
)

func TestURL_IsParsed(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Options{
		"etcd://a":                                {Endpoints: []string{"a:2379"}},
		"etcd://a:1,b:2/":                         {Endpoints: []string{"a:1", "b:2"}},
		"etcd://a,b:2?prefix=p/":                  {Endpoints: []string{"a:2379", "b:2"}, Prefix: "p/"},
		"etcd://[::1]:7?idle=48h":                 {Endpoints: []string{"[::1]:7"}, Idle: 48 * time.Hour},
		"etcd://a:1?endpoints=[::1]:7,c":          {Endpoints: []string{"a:1", "[::1]:7", "c:2379"}},
		"etcd://me:s%3Acret@a:1?tls=off&idle=-1s": {Endpoints: []string{"a:1"}, User: "me", Password: "s:cret", Idle: -time.Second},
		"etcd://a:1?tls=on&prefix=x":              {Endpoints: []string{"a:1"}, Prefix: "x"},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(u)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if strings.Contains(text, "tls=on") != (got.TLS != nil) {
			t.Errorf("%s: TLS is %v", text, got.TLS)
		}
		if !slices.Equal(got.Endpoints, want.Endpoints) || got.User != want.User || got.Password != want.Password || got.Prefix != want.Prefix || got.Idle != want.Idle {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

func TestURL_IsRejected(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, part := range map[string]string{
		"etcd:":                             "want etcd://host:port",
		"etcd://a/path":                     "without a path",
		"etcd://a?colour=red":               "there are: ca, cert, endpoints, idle, key, open, prefix, tls",
		"etcd://a?prefix=a&prefix=b":        "given 2 times",
		"etcd://a?prefix=a%20b":             "not allowed",
		"etcd://a?tls=maybe":                "want on or off",
		"etcd://a?tls=off&ca=x":             "tls=off",
		"etcd://a?cert=x":                   "both or none",
		"etcd://a?ca=/no/such/file":         "no such file",
		"etcd://a?ca=" + empty:              "no certificate",
		"etcd://a?open=never":               "want check or lazy",
		"etcd://a?idle=never":               "want a duration",
		"etcd://a,,b":                       "want host:port",
		"etcd://me:hush@a?colour=red":       "not known",
		"etcd://me:hush@a?prefix=%7Bx":      "not allowed",
		"etcd://me:hush@a:1/?endpoints=b/c": "want host:port",
	} {
		_, err := fleet.Open(context.Background(), text)
		storetest.WantError(t, err, part)
		if !errors.Is(err, sema.ErrInvalid) {
			t.Errorf("%s: %v is not ErrInvalid", text, err)
		}
		if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the password is in %q", text, err)
		}
	}
}
