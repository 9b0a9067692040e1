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
	fresh.Etcdctl("put", "key", "after")
	old.Rejoin()
	awaitHealth(t, old, true)
	if got := old.Etcdctl("get", "--print-value-only", "key"); got != "after" {
		t.Errorf("it has %q", got)
	}
}

// awaitHealth waits until a server is in a majority, or knows that it is not.
func awaitHealth(t *testing.T, n *Node, want bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); (n.answers() == nil) != want; time.Sleep(10 * time.Millisecond) {
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

func TestCompactForgetsThePast(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	c.Etcdctl("put", "key", "first")
	c.Etcdctl("put", "key", "second")
	if got := c.Etcdctl("get", "--print-value-only", "--rev", "2", "key"); got != "first" {
		t.Fatalf("before: %q", got)
	}
	c.Compact()
	if got := c.Etcdctl("get", "--print-value-only", "key"); got != "second" {
		t.Errorf("after: %q", got)
	}
	if _, err := c.tryEtcdctl(c.Addresses(), []string{"get", "--rev", "2", "key"}); err == nil {
		t.Error("the past is still there")
	}
}
