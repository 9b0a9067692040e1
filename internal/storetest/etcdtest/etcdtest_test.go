package etcdtest

import (
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

func TestNode_IsolatedLeaderIsReplaced(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	old := c.Leader()
	c.Etcdctl("put", "key", "before")
	old.Isolate()
	awaitHealth(t, old, false)
	fresh := c.Leader()
	if fresh == old {
		t.Fatal("the isolated server is still the leader")
	}
	fresh.Etcdctl("put", "key", "after")
	old.Rejoin()
	awaitHealth(t, old, true)
	if got := old.Etcdctl("get", "--print-value-only", "key"); got != "after" {
		t.Errorf("after Rejoin the key is %q, want %q", got, "after")
	}
}

// awaitHealth waits until a server is part of a majority, or detects that it is
// not.
func awaitHealth(t *testing.T, n *Node, want bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); (n.checkReady() == nil) != want; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v, want health %t", n.checkReady(), want)
		}
	}
}

func TestNode_KeepsItsDataWhenKilled(t *testing.T) {
	t.Parallel()
	c := StartTLS(t, storetest.NewAuthority(t))
	c.Etcdctl("put", "key", "value")
	c.Nodes[0].Kill()
	if c.Nodes[0].checkReady() == nil {
		t.Error("a killed server is ready")
	}
	c.Nodes[0].Restart()
	if got := c.Etcdctl("get", "--print-value-only", "key"); got != "value" {
		t.Errorf("after Restart the key is %q, want %q", got, "value")
	}
}

func TestCluster_CompactDeletesOldRevisions(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	c.Etcdctl("put", "key", "first")
	c.Etcdctl("put", "key", "second")
	if got := c.Etcdctl("get", "--print-value-only", "--rev", "2", "key"); got != "first" {
		t.Fatalf("before Compact, revision 2 is %q, want %q", got, "first")
	}
	c.Compact()
	if got := c.Etcdctl("get", "--print-value-only", "key"); got != "second" {
		t.Errorf("after Compact the key is %q, want %q", got, "second")
	}
	if _, err := c.tryEtcdctl(c.Addresses(), []string{"get", "--rev", "2", "key"}); err == nil {
		t.Error("revision 2 was not deleted")
	}
}
