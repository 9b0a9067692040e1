package etcdstore

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/internal/storetest"
)

func TestStore_PrintsNoPassword(t *testing.T) {
	t.Parallel()
	s := &Store{}
	s.connection.config = clientv3.Config{Endpoints: []string{"a:1", "b:2"}, Username: "app", Password: "secret"}
	storetest.Prints(t, s, "etcd at a:1, b:2")
	storetest.Prints(t, Options{Endpoints: []string{"a:1"}, User: "app", Password: "secret"}, `etcd at a:1, user "app", with a password: true, by TLS: false`)
}
