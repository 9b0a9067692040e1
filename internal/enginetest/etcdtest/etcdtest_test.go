package etcdtest

import (
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

func TestAnIsolatedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	old := c.Leader()
	c.Etcdctl("put", "key", "before")
	old.Isolate()
	awaitHealth(t, old, false)
	fresh := c.Leader()
	if fresh == old {
		t.Fatal("it still leads")
	}
	c.Etcdctl("--endpoints", fresh.Address, "put", "key", "after")
	old.Rejoin()
	awaitHealth(t, old, true)
	if got := c.Etcdctl("--endpoints", old.Address, "get", "--print-value-only", "key"); got != "after" {
		t.Errorf("it has %q", got)
	}
}

// awaitHealth waits until a server is in a majority, or knows that it is not.
func awaitHealth(t *testing.T, n *Node, want bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); (n.answers() == nil) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v, want health %t", n.answers(), want)
		}
	}
}

func TestAKilledServerComesBackWithItsData(t *testing.T) {
	t.Parallel()
	c := StartTLS(t, enginetest.NewAuthority(t))
	c.Etcdctl("put", "key", "value")
	c.Nodes[0].Kill()
	if c.Nodes[0].answers() == nil {
		t.Error("it answers though it was killed")
	}
	c.Nodes[0].Restart()
	if got := c.Etcdctl("get", "--print-value-only", "key"); got != "value" {
		t.Errorf("it has %q", got)
	}
}
