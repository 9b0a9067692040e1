package remotestore

import (
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

func TestStore_PrintsNoToken(t *testing.T) {
	t.Parallel()
	s, err := Open(t.Context(), Options{Hosts: []string{"127.0.0.1:1"}, Token: "secret", Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	storetest.Prints(t, s, "sema service at "+s.addresses[0])
	storetest.Prints(t, Options{Hosts: []string{"a:1"}, Token: "secret"}, "hosts a:1, by TLS: false, with a token: true")
}
