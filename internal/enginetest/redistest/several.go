package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

// Replica starts a server that follows another one, and waits until it does.
func Replica(t enginetest.TB, of *Server, settings ...string) *Server {
	t.Helper()
	// One that sends its data from memory keeps what comes after it to itself until
	// the replica has said something, which it does once a second.
	of.Must("CONFIG", "SET", "repl-diskless-sync", "no")
	s := Start(t, append([]string{
		"--replicaof", "127.0.0.1 " + strconv.Itoa(of.Port), "--masterauth", of.client.password, "--repl-diskless-sync", "no",
	}, settings...)...)
	s.Await("master_link_status:up", "INFO", "replication")
	return s
}

// CatchUp waits until a replica has all that its primary has by now. (WAIT is about
// what was written by the connection that it comes from.)
func (s *Server) CatchUp(primary *Server) {
	s.tb.Helper()
	want := offset(primary.Must("INFO", "replication"), "master_repl_offset:")
	for deadline := time.Now().Add(20 * time.Second); offset(s.Must("INFO", "replication"), "slave_repl_offset:") < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.tb.Fatalf("the replica at %s does not catch up", s.Address)
		}
	}
}

func offset(info, key string) (n int64) {
	_, after, _ := strings.Cut(info, "\r\n"+key)
	fmt.Sscan(after, &n)
	return n
}

// Promote makes a replica a primary.
func (s *Server) Promote() { s.tb.Helper(); s.Must("REPLICAOF", "NO", "ONE") }

// Sentinels starts some that watch the primary at a port, under the name "main".
func Sentinels(t enginetest.TB, n, primary int) (all []*Server) {
	t.Helper()
	program := enginetest.Need(t, "redis-server", packages)
	for range n {
		all = append(all, enginetest.Launch(t, func() *Server {
			directory := enginetest.Directory(t, "")
			file := filepath.Join(directory, "sentinel.conf") // which it writes to
			return newServer(t, program, directory, client{}, func(port int) []string {
				settings := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %d %d\n"+
					"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n", port, directory, primary, n/2+1)
				if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
					t.Fatalf("a Sentinel's settings: %v", err)
				}
				return []string{file, "--sentinel"}
			})
		}))
	}
	for _, s := range all {
		s.Await(fmt.Sprintf("num-other-sentinels\n%d", n-1), "SENTINEL", "MASTER", "main")
	}
	return all
}

// Cluster starts a cluster of so many primaries.
func Cluster(t enginetest.TB, n int) (all []*Server) {
	t.Helper()
	for range n {
		all = append(all, Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	const slots = 16384
	for i, s := range all {
		s.Must("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(i*slots/n), strconv.Itoa((i+1)*slots/n-1))
		if i > 0 {
			s.Must("CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(all[0].Port))
		}
	}
	for _, s := range all {
		s.Await("cluster_state:ok", "CLUSTER", "INFO")
		s.Await(fmt.Sprintf("cluster_known_nodes:%d", n), "CLUSTER", "INFO")
	}
	return all
}
