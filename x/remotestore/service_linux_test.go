package remotestore

import (
	"testing"

	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// TestServers_ThreeOverOneRedis runs three servers in their own processes. One is killed,
// and one is suspended.
func TestServers_ThreeOverOneRedis(t *testing.T) {
	t.Parallel()
	backend := redistest.Start(t).URL()
	var servers []*proctest.Process
	var hosts []string
	for range 3 {
		server := startServer(t, "127.0.0.1:0", backend)
		servers, hosts = append(servers, server), append(hosts, server.Receive())
	}
	c := newWorkload(t, hosts...)
	defer c.end(t)
	c.awaitTurns(t, 100)
	servers[0].End()
	c.awaitTurns(t, 100)
	servers[1].Stop()
	c.awaitTurns(t, 100)
}
