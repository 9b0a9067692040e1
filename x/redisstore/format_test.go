package redisstore

import (
	"crypto/tls"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

func TestStore_PrintsNoPassword(t *testing.T) {
	t.Parallel()
	o := Options{Addresses: []string{"a:1", "b:2"}, Username: "app", Password: "secret", SentinelPassword: "secret", TLS: &tls.Config{}}
	storetest.Prints(t, &Store{options: o}, "redis at a:1, b:2")
	storetest.Prints(t, o, `redis at a:1, b:2, user "app", with a password: true, by TLS: true`)
}
