package doctor

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/x/server"
)

// TestDoctor_Service checks that the store behind a service is examined.
func TestDoctor_Service(t *testing.T) {
	t.Parallel()
	s, err := server.New(memstore.New(), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewUnstartedServer(s)
	listening.Config.Protocols = &http.Protocols{}
	listening.Config.Protocols.SetHTTP1(true)
	listening.Config.Protocols.SetUnencryptedHTTP2(true)
	listening.Start()
	t.Cleanup(func() {
		_ = s.Close(t.Context())
		listening.Close()
	})
	r, code := diagnose(t, strings.Replace(listening.URL, "http:", "sema:", 1))
	if code != 0 {
		t.Errorf("code %d: %s", code, r.text())
	}
	r.want(t, "use", fleet.LevelOK, "")
	r.want(t, "deadlock", fleet.LevelOK, "none among 0 semaphores")
	r.want(t, "clock", fleet.LevelOK, "within")
	r.want(t, "persistence", fleet.LevelWarning, "in the memory")
}

// TestOpenFinding_StoreBehindAService checks that the advice leads to the store of the server.
func TestOpenFinding_StoreBehindAService(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("sema service at h:1: %w: cannot reach redis at r:1: connection refused", sema.ErrUnavailable)
	for url, want := range map[string]bool{"sema://h:1": true, "semas://h:1": true, "redis://h:1": false} {
		u, err := store.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		if f := openFinding(u, away); strings.Contains(f.Advice, "store of the server") != want {
			t.Errorf("%s: %+v", url, f)
		}
	}
}
