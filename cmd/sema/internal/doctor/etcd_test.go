package doctor

import (
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

func TestDoctor_EtcdIsFine(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Shared.Server(t)
	r, code := diagnose(t, cluster.URL()+"?prefix=well/")
	for _, check := range []string{"connect", "authenticate", "clock", "version", "quorum", "endpoints", "database size", "alarms", "stored", "use"} {
		r.want(t, check, fleet.LevelOK, "")
	}
	if code != 0 {
		t.Errorf("code %d: %s", code, r.text())
	}
	r.want(t, "clock", fleet.LevelOK, "the store does not use a clock")
	if left := cluster.Etcdctl("get", "--prefix", "--keys-only", "well/"); strings.Contains(left, "examined") || strings.Contains(left, "head/") {
		t.Errorf("left behind: %s", left)
	}
}

func TestDoctor_EtcdWithProblems(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	url := cluster.URL()
	one := "etcd://" + cluster.Nodes[0].Address
	r, _ := diagnose(t, one)
	r.want(t, "quorum", fleet.LevelOK, "3 of 3 members reply, 2 are a majority")
	r.want(t, "endpoints", fleet.LevelWarning, "the URL names 1 of 3 members")

	cluster.Nodes[2].Kill()
	cluster.Leader() // waits for a leader
	r, code := diagnose(t, url)
	r.want(t, "connect", fleet.LevelWarning, "no program listens on the port")
	r.want(t, "quorum", fleet.LevelWarning, "2 of 3 members reply, 2 are a majority; 0 more may fail; start node2")
	if code != 0 {
		t.Errorf("code %d: %s", code, r.text())
	}

	cluster.Nodes[1].Kill()
	r, code = diagnose(t, url, "--timeout", "3s")
	r.want(t, "quorum", fleet.LevelProblem, "start the members that are down")
	if code != 69 {
		t.Errorf("code %d", code)
	}
}

func TestDoctor_EtcdIsFull(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1, "--quota-backend-bytes", "200000")
	for range 40 { // until it is full
		if out, err := cluster.TryEtcdctl("put", "x", strings.Repeat("x", 20_000)); err != nil && strings.Contains(out, "database space exceeded") {
			break
		}
	}
	r, code := diagnose(t, cluster.URL())
	r.want(t, "alarms", fleet.LevelProblem, "NOSPACE")
	r.want(t, "alarms", fleet.LevelProblem, "etcdctl alarm disarm")
	r.want(t, "disk", fleet.LevelProblem, "it cannot be written to")
	r.want(t, "use", fleet.LevelProblem, "acquire fails")
	r.want(t, "use", fleet.LevelProblem, "compact and defragment")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

func TestDoctor_EtcdIsUnreachable(t *testing.T) {
	t.Parallel()
	secured := etcdtest.StartTLS(t, storetest.NewAuthority(t))
	closed := storetest.Loopback(storetest.Port(t))
	for _, c := range []struct{ store, check, text string }{
		{"etcd://" + closed, "connect", "no program listens on the port"},
		{"etcd://" + secured.Nodes[0].Address + "?tls=on", "TLS", "signed by an authority that this machine trusts"},
	} {
		r, code := diagnose(t, c.store, "--timeout", "5m")
		r.want(t, c.check, fleet.LevelProblem, c.text)
		if code != 69 {
			t.Errorf("%s: code %d", c.store, code)
		}
	}
}
