package redistest

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

func TestAKilledServerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	s := Start(t, "--appendonly", "yes", "--appendfsync", "always", "--requirepass", "swordfish")
	s.Must("SET", "key", "value")
	s.Kill()
	if _, err := s.Do("PING"); err == nil {
		t.Error("it answers though it was killed")
	}
	s.Restart()
	if got := s.Must("GET", "key"); got != "value" {
		t.Errorf("it has %q", got)
	}
	s.Stop()
	s.Restart()
	if got := s.Must("GET", "key"); got != "value" {
		t.Errorf("it has %q", got)
	}
}

func TestAPausedServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Pause()
	answered := make(chan error)
	go func() {
		_, err := s.Do("PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("it answers: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	s.Continue()
	if err := <-answered; err != nil {
		t.Error(err)
	}
	s.Pause()
	s.Kill()
	s.Restart()
}

// TestServersDoNotCollide: many at once all start, and one that finds another at
// its port does not take it for itself.
func TestServersDoNotCollide(t *testing.T) {
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
				t.Fatalf("two servers are at %s", s.Address)
			}
		}
	}
	late := newServer(t, enginetest.Need(t, "redis-server", packages), t.TempDir(), client{}, func(int) []string {
		return []string{"--port", all[0].Address[strings.LastIndex(all[0].Address, ":")+1:], "--bind", "127.0.0.1"}
	})
	late.client.address = all[0].Address
	if err := late.Start(); err == nil {
		t.Error("a server took another one for itself")
	}
}
