package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

func TestDoctor_RedisIsFine(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	r, code := diagnose(t, server.URL())
	r.wantFine(t, code)
	for _, check := range []string{"connect", "authenticate", "clock", "version", "persistence", "eviction", "memory", "replication", "stored", "use"} {
		r.want(t, check, fleet.LevelOK, "")
	}
	if left := server.Must("KEYS", "*doctor*"); strings.Contains(left, ":leases") || strings.Contains(left, ":sessions") {
		t.Errorf("left behind: %s", left)
	}
	if text := commandtest.Run(t, "doctor", "--store", server.URL(), "--pings", "2"); text.Code != 0 ||
		!strings.Contains(text.Out, "\nok       persistence    append-only file, appendfsync everysec\n") || !strings.HasSuffix(text.Out, "\nno problems\n") && !strings.Contains(text.Out, "warning  latency") {
		t.Errorf("%+v", text)
	}
}

func TestDoctor_RedisIsMisconfigured(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	redistest.Replica(t, server)
	r, code := diagnose(t, server.URL())
	if code != 1 {
		t.Errorf("code %d", code)
	}
	r.want(t, "persistence", fleet.LevelWarning, "none: after a restart, holders have lost their permits")
	r.want(t, "eviction", fleet.LevelProblem, "allkeys-lru")
	r.want(t, "replication", fleet.LevelProblem, "1 replicas and min-replicas-to-write is 0")
	r.want(t, "replication", fleet.LevelProblem, "set it to 1 on all of them")

	server.Must("CONFIG", "SET", "min-replicas-to-write", "1")
	server.Must("CONFIG", "SET", "min-replicas-max-lag", "30")
	server.Must("CONFIG", "SET", "maxmemory", "1mb") // less than it uses
	r, _ = diagnose(t, server.URL())
	r.want(t, "replication", fleet.LevelProblem, "set promotion=32s")
	r.want(t, "memory", fleet.LevelProblem, "every acquire is rejected (OOM): raise maxmemory")
	server.Must("CONFIG", "SET", "maxmemory", "0")
	server.Must("CONFIG", "SET", "save", "3600 1")
	r, code = diagnose(t, server.URL()+"?promotion=40s")
	r.want(t, "replication", fleet.LevelOK, "1 replicas, min-replicas-to-write 1, max-lag 30s")
	r.want(t, "persistence", fleet.LevelWarning, "snapshots only (save 3600 1)")
	r.want(t, "eviction", fleet.LevelProblem, "once maxmemory is set")
	if code != 1 {
		t.Errorf("with a problem: exit code %d", code)
	}
	server.Must("CONFIG", "SET", "maxmemory-policy", "noeviction")
	r, code = diagnose(t, server.URL()+"?promotion=40s")
	r.want(t, "eviction", fleet.LevelOK, "noeviction")
	if code != 0 {
		t.Errorf("with warnings: exit code %d", code)
	}
}

// TestDoctor_RemovesItsSemaphore checks that nothing is left in a store that grants nothing yet.
func TestDoctor_RemovesItsSemaphore(t *testing.T) {
	t.Parallel()
	server := redistest.Replica(t, redistest.Start(t))
	server.Must("REPLICAOF", "NO", "ONE")
	r, _ := diagnose(t, server.URL()+"?promotion=1m")
	r.want(t, "use", fleet.LevelWarning, "nothing was granted")
	if left := server.Must("ZRANGE", "sema:names", "0", "-1"); strings.Contains(left, "doctor") {
		t.Errorf("left behind: %s", left)
	}
}

// TestDoctor_SeveralRedisServers checks that findings name the server.
func TestDoctor_SeveralRedisServers(t *testing.T) {
	t.Parallel()
	good, bad := redistest.Start(t, "--appendonly", "yes"), redistest.Start(t, "--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	r, code := diagnose(t, "redis://"+good.Address+"?sharded=1&addrs="+bad.Address)
	r.want(t, "eviction", fleet.LevelProblem, bad.Address+": maxmemory-policy is allkeys-lru")
	r.want(t, "eviction", fleet.LevelOK, good.Address+": noeviction")
	r.want(t, "connect", fleet.LevelOK, bad.Address)
	if code != 1 {
		t.Errorf("code %d", code)
	}

	cluster := redistest.Cluster(t, 3)
	r, code = diagnose(t, "redis://"+cluster[0].Address+"?cluster=1")
	for _, node := range cluster {
		r.want(t, "version", fleet.LevelOK, node.Address)
	}
	r.want(t, "use", fleet.LevelOK, "work")
	if code != 0 {
		t.Errorf("code %d: %s", code, r.text())
	}
	r, _ = diagnose(t, "redis://"+cluster[0].Address)
	r.want(t, "role", fleet.LevelProblem, "use cluster=1")

	watched := redistest.Start(t)
	sentinels := redistest.Sentinels(t, 1, watched.Port)
	r, code = diagnose(t, "redis://"+sentinels[0].Address+"?sentinel=main")
	r.want(t, "use", fleet.LevelOK, "work")
	if code != 0 {
		t.Errorf("code %d: %s", code, r.text())
	}
}

func TestDoctor_RedisReplica(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	r, code := diagnose(t, redistest.Replica(t, primary).URL())
	r.want(t, "role", fleet.LevelProblem, "it is a replica of 127.0.0.1:")
	r.want(t, "use", fleet.LevelProblem, "acquire fails")
	r.want(t, "use", fleet.LevelProblem, "as replicas and standbys are: name the primary")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

// TestDoctor_RedisOutOfMemory checks that full memory is distinguished from a full disk and from
// missing rights.
func TestDoctor_RedisOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Must("CONFIG", "SET", "maxmemory", "1")
	r, code := diagnose(t, server.URL())
	r.want(t, "use", fleet.LevelProblem, "raise maxmemory")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

func TestDoctor_RedisIsUnreachable(t *testing.T) {
	t.Parallel()
	closed := storetest.Loopback(storetest.Port(t))
	secured := redistest.Start(t, "--requirepass", secret)
	encrypted, _ := redistest.TLS(t)
	hung := storetest.NewProxy(t, secured.Address)
	hung.SetFault(storetest.Fault{LoseRequests: true})
	for _, c := range []struct{ store, check, text string }{
		{"redis://" + closed, "connect", "no program listens on the port"},
		{"redis://no-such-host.invalid:6379", "resolve", "check its spelling"},
		{"redis://:" + secret + "-wrong@" + secured.Address, "authenticate", "check user and password"},
		{"redis://" + secured.Address, "authenticate", "check user and password"},
		{"rediss://" + secured.Address, "TLS", "use TLS on both sides or on neither"},
		{"rediss://" + encrypted.Address, "TLS", "signed by an authority that this machine trusts"},
		{"redis://:" + secret + "@" + hung.Address, "reply", "does not reply like this store"},
	} {
		timeout := "5m" // a twelfth of it is for a server that replies, on a busy machine
		if c.check == "reply" {
			timeout = "3s"
		}
		r, code := diagnose(t, c.store, "--timeout", timeout)
		r.want(t, c.check, fleet.LevelProblem, c.text)
		if code != 69 || r.Reached {
			t.Errorf("%s: code %d", c.store, code)
		}
	}
}

// TestDoctor_RedisUserWithTooFewRights checks that the report names what a user may not do.
func TestDoctor_RedisUserWithTooFewRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Must("ACL", "SETUSER", "reader", "on", ">"+secret, "+@read", "+@connection", "+time", "~*")
	r, code := diagnose(t, "redis://reader:"+secret+"@"+server.Address)
	r.want(t, "settings", fleet.LevelProblem, "allow the user +info")
	r.want(t, "use", fleet.LevelProblem, "acquire fails")
	r.want(t, "use", fleet.LevelProblem, "grant the user")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

func TestDoctor_ClockIsOff(t *testing.T) {
	t.Parallel()
	clock := storetest.NewClock(t)
	server := redistest.Start(clock.For(t))
	clock.Set(time.Hour)
	r, _ := diagnose(t, server.URL())
	r.want(t, "clock", fleet.LevelWarning, "1h0m0s ahead of this machine's")

	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ahead := time.Hour; ; ahead += time.Minute {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				clock.Set(ahead)
			}
		}
	}()
	r, _ = diagnose(t, server.URL(), "--pings", "50")
	close(stop)
	<-stopped
	r.want(t, "clock", fleet.LevelWarning, "it stepped by ")
}

func TestDoctor_SlowNetwork(t *testing.T) {
	t.Parallel()
	slow := storetest.NewProxy(t, redistest.Shared.Server(t).Address)
	slow.SetFault(storetest.Fault{Latency: 20 * time.Millisecond})
	url := "redis://" + slow.Address
	r, _ := diagnose(t, url)
	r.want(t, "latency", fleet.LevelWarning, "use a store nearby")
	r, code := diagnose(t, url, "--ttl", "60ms")
	r.want(t, "latency", fleet.LevelProblem, "holders send a heartbeat every 20ms")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}
