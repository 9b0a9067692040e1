package redisstore

import (
	"crypto/tls"
	"testing"

	"github.com/sema-go/sema/internal/enginetest"
)

func TestStore_PrintsNoPassword(t *testing.T) {
	t.Parallel()
	o := Options{Addresses: []string{"a:1", "b:2"}, Username: "app", Password: "secret", SentinelPassword: "secret", TLS: &tls.Config{}}
	enginetest.Prints(t, &Store{options: o}, "redis at a:1, b:2")
	enginetest.Prints(t, o, `redis at a:1, b:2, user "app", with a password: true, by TLS: true`)
}
