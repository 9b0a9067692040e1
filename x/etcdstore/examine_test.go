package etcdstore

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet"
)

// members returns the state of n members, of which the first few reply.
func members(n, replying int) clusterState {
	c := clusterState{replies: map[uint64]*clientv3.StatusResponse{}}
	for i := range n {
		id := uint64(i + 1)
		c.members = append(c.members, &etcdserverpb.Member{ID: id, Name: fmt.Sprintf("m%d", id), ClientURLs: []string{"http://a"}})
		c.named = append(c.named, "a")
		if i < replying {
			c.replies[id] = &clientv3.StatusResponse{Version: "3.4.23", Leader: 1, DbSize: 30 << 20, DbSizeInUse: 20 << 20}
		}
	}
	return c
}

func TestClusterState_HasFindings(t *testing.T) {
	t.Parallel()
	changed := func(c clusterState, change func(*clusterState)) clusterState {
		change(&c)
		return c
	}
	sized := func(size, used, quota int64) clusterState {
		return changed(members(3, 3), func(c *clusterState) {
			c.replies[2].DbSize, c.replies[2].DbSizeInUse, c.replies[2].DbSizeQuota = size<<20, used<<20, quota<<20
		})
	}
	for _, c := range []struct {
		state clusterState
		find  func(clusterState) fleet.Finding
		level fleet.Level
		text  string
	}{
		{members(3, 3), clusterState.quorum, fleet.LevelOK, "3 of 3 members reply, 2 are a majority"},
		{members(1, 1), clusterState.quorum, fleet.LevelOK, "1 of 1"},
		{members(3, 2), clusterState.quorum, fleet.LevelWarning, "0 more may fail; start m3 (http://a)"},
		{members(5, 4), clusterState.quorum, fleet.LevelWarning, "1 more may fail"},
		{members(3, 1), clusterState.quorum, fleet.LevelProblem, "start m2 (http://a), m3 (http://a)"},
		{members(4, 4), clusterState.quorum, fleet.LevelWarning, "no more failures than 3"},
		{changed(members(3, 3), func(c *clusterState) {
			for _, a := range c.replies {
				a.Leader = 0
			}
		}), clusterState.quorum, fleet.LevelProblem, "majority"},
		{changed(members(4, 3), func(c *clusterState) { c.members[3].IsLearner = true }), clusterState.quorum, fleet.LevelOK, "3 of 3"},

		{members(3, 3), clusterState.endpoints, fleet.LevelOK, "3 of 3"},
		{changed(members(3, 3), func(c *clusterState) { c.named = c.named[:1] }), clusterState.endpoints, fleet.LevelWarning, "1 of 3 members"},
		{members(3, 3), clusterState.version, fleet.LevelOK, "etcd 3.4.23"},
		{changed(members(3, 3), func(c *clusterState) { c.replies[2].Version = "3.5.1" }), clusterState.version, fleet.LevelWarning, "etcd 3.4.23, 3.5.1"},

		{members(3, 3), clusterState.size, fleet.LevelOK, "30 MB, 20 MB of it in use"},
		{sized(1600, 1500, 0), clusterState.size, fleet.LevelWarning, "at 2048 MB"},
		{sized(1600, 1500, 8192), clusterState.size, fleet.LevelOK, "1600 MB"},
		{sized(120, 10, 0), clusterState.size, fleet.LevelWarning, "etcdctl defrag"},
	} {
		if f := c.find(c.state); f.Level != c.level || !strings.Contains(f.String(), c.text) {
			t.Errorf("%+v, want %s %q", f, c.level, c.text)
		}
	}
}
