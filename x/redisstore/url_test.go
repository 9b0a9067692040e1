package redisstore

import (
	"net"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

func TestParse_URLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Options{
		"redis://localhost":                                        {Addresses: []string{"localhost:6379"}},
		"redis://ann:secret@db:1/3?prefix=app:":                    {Addresses: []string{"db:1"}, Username: "ann", Password: "secret", DB: 3, Prefix: "app:"},
		"redis://:secret@[::1]:2":                                  {Addresses: []string{"[::1]:2"}, Password: "secret"},
		"redis://a?sentinel=main&addrs=b,c:3":                      {Addresses: []string{"a:26379", "b:26379", "c:3"}, Sentinel: "main"},
		"redis://a?cluster=1&promotion=3s":                         {Addresses: []string{"a:6379"}, Cluster: true, Promotion: 3 * time.Second},
		"redis://a,b:3?sentinel=main&addrs=c":                      {Addresses: []string{"a:26379", "b:3", "c:26379"}, Sentinel: "main"},
		"redis://a?sharded=1&addrs=b":                              {Addresses: []string{"a:6379", "b:6379"}, Sharded: true},
		"redis://a?sentinel=m&sentinel_user=u&sentinel_password=p": {Addresses: []string{"a:26379"}, Sentinel: "m", SentinelUsername: "u", SentinelPassword: "p"},
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parse(u)
		if err == nil {
			err = got.check()
		}
		if want.Prefix == "" {
			want.Prefix = "sema:"
		}
		if want.Promotion == 0 {
			want.Promotion = 12 * time.Second
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestOpen_RejectsURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"redis:localhost":                       "redis://user:password@host:port/db",
		"redis://a?color=red":                   `"color" is not known; there are: addrs, ca, cert, cluster,`,
		"redis://a?prefix=a&prefix=b":           "given 2 times",
		"redis://a/x":                           "number of a database",
		"redis://a?cluster=maybe":               "want 1 or 0",
		"redis://a?cluster=1&sharded=1":         "one of sentinel, cluster and sharded",
		"redis://a?addrs=b":                     "2 addresses: want sentinel=name",
		"redis://a,b:1":                         "2 addresses: want sentinel=name",
		"redis://a/1?cluster=1":                 "database 1: a cluster has only database 0",
		"redis://a?prefix={":                    "without spaces and braces",
		"redis://a?promotion=soon":              "want a time",
		"redis://a?ca=x":                        "for rediss://",
		"rediss://a?ca=/does/not/exist":         "no such file",
		"rediss://a?cert=x":                     "want both or none",
		"redis://ann:hunter2@a?prefix=%zz":      "cannot be parsed",
		"redis://ann:hunter2@a?nonsense=1":      "is not known",
		"redis://ann:hunter2@a:1?promotion=-1s": "want a time",
	} {
		_, err := fleet.Open(ctx, text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

func TestOpen_ErrorsHaveAdviceAndNoPassword(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused := l.Addr().String()
	l.Close()
	server := redistest.Start(t)
	server.Must("CONFIG", "SET", "requirepass", "swordfish")
	for text, want := range map[string]string{
		"redis://ann:hunter2@" + unused:         "cannot reach redis at " + unused + ": connection refused",
		"redis://ann:hunter2@" + server.Address: "unknown user or wrong password",
		"redis://" + server.Address:             "it requires a password",
	} {
		client, err := fleet.Open(ctx, text)
		if err == nil {
			_, err = client.Info(ctx, "db")
			client.Close(ctx)
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	store := openURL(t, "redis://:swordfish@"+server.Address)
	if text := store.String(); strings.Contains(text, "swordfish") || !strings.Contains(text, server.Address) {
		t.Error(text)
	}
}
