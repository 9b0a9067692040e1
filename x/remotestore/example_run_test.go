package remotestore_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/x/server"
)

// TestExample_Prints runs Example with a store. go test only compiles it, since it needs
// one.
func TestExample_Prints(t *testing.T) {
	handler, err := server.New(memstore.New(), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(handler)
	s.Config.ConnContext, s.Config.Protocols = server.ConnContext, &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		if err := handler.Close(t.Context()); err != nil {
			t.Log(err)
		}
	})
	t.Setenv("SEMA_STORE", strings.Replace(s.URL, "http", "sema", 1))
	if got := storetest.Printed(t, Example); got != "1 of 40\n" {
		t.Errorf("printed %q", got)
	}
}
