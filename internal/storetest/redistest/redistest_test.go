package redistest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

func TestServer_KeepsItsDataWhenKilled(t *testing.T) {
	t.Parallel()
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always", "--requirepass", "swordfish")
	s.Must("SET", "key", "value")
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Error("a killed server replies")
	}
	s.Restart()
	if got := s.Must("GET", "key"); got != "value" {
		t.Errorf("after a kill the key is %q, want %q", got, "value")
	}
	s.Stop()
	s.Restart()
	if got := s.Must("GET", "key"); got != "value" {
		t.Errorf("after a stop the key is %q, want %q", got, "value")
	}
}

func TestServer_DoesNotReplyWhilePaused(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	replied := make(chan error)
	go func() {
		_, err := s.Do("PING")
		replied <- err
	}()
	select {
	case err := <-replied:
		t.Errorf("a paused server replied: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Continue()
	if err := <-replied; err != nil {
		t.Error(err)
	}
	s.Pause()
	s.Kill()
	s.Restart()
}

// TestStart_ServersDoNotCollide starts many servers at once. A server that
// finds another one on its port must not become ready.
func TestStart_ServersDoNotCollide(t *testing.T) {
	t.Parallel()
	all := make([]*Server, 8)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = Start(t) })
	}
	wg.Wait()
	for i, s := range all {
		s.Must("SET", "me", s.Address)
		for _, other := range all[:i] {
			if other.Must("GET", "me") != other.Address {
				t.Fatalf("two servers use %s", s.Address)
			}
		}
	}
	late := newServer(t, storetest.Need(t, "redis-server", packages), t.TempDir(), client{}, func(int) []string {
		return []string{"--port", all[0].Address[strings.LastIndex(all[0].Address, ":")+1:], "--bind", "127.0.0.1"}
	})
	late.client.address = all[0].Address
	if err := late.Start(); err == nil {
		t.Error("a server became ready on the port of another server")
	}
}
