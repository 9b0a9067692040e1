package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

// Replica starts a replica of another server and waits until it is connected.
func Replica(t storetest.TB, of *Server, settings ...string) *Server {
	t.Helper()
	// After a diskless sync, the primary holds back new writes until the
	// replica's next acknowledgement, which is sent once a second.
	of.Must("CONFIG", "SET", "repl-diskless-sync", "no")
	s := Start(t, append([]string{
		"--replicaof", "127.0.0.1 " + strconv.Itoa(of.Port), "--masterauth", of.client.password, "--repl-diskless-sync", "no",
	}, settings...)...)
	s.Await("master_link_status:up", "INFO", "replication")
	return s
}

// CatchUp waits until a replica has everything its primary has written so far.
// (WAIT covers only the writes of the connection that sends it.)
func (s *Server) CatchUp(primary *Server) {
	s.tb.Helper()
	want := offset(primary.Must("INFO", "replication"), "master_repl_offset:")
	for deadline := time.Now().Add(20 * time.Second); offset(s.Must("INFO", "replication"), "slave_repl_offset:") < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.tb.Fatalf("the replica at %s did not catch up within 20s", s.Address)
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

// Sentinels starts n Sentinels that monitor the primary at a port, under the
// name "main".
func Sentinels(t storetest.TB, n, primary int) (all []*Server) {
	t.Helper()
	program := storetest.Need(t, "redis-server", packages)
	for range n {
		all = append(all, storetest.Launch(t, func() *Server {
			directory := storetest.Directory(t, "")
			file := filepath.Join(directory, "sentinel.conf") // the Sentinel writes to it
			return newServer(t, program, directory, client{}, func(port int) []string {
				settings := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %d %d\n"+
					"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n", port, directory, primary, n/2+1)
				if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
					t.Fatalf("write sentinel.conf: %v", err)
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

// Cluster starts a cluster of n primaries.
func Cluster(t storetest.TB, n int) (all []*Server) {
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
