package remotestore

import (
	"testing"

	"github.com/sema-go/sema/internal/enginetest/redistest"
	"github.com/sema-go/sema/internal/proctest"
)

// TestThreeServersOverOneRedis, in processes of their own: one is killed by the
// system, and one stops without a word.
func TestThreeServersOverOneRedis(t *testing.T) {
	t.Parallel()
	engine := redistest.Start(t).URL()
	var servers []*proctest.Process
	var hosts []string
	for range 3 {
		server := startServer(t, "127.0.0.1:0", engine)
		servers, hosts = append(servers, server), append(hosts, server.Hear())
	}
	c := newCrowd(t, hosts...)
	defer c.end(t)
	c.goOn(t, 100)
	servers[0].End()
	c.goOn(t, 100)
	servers[1].Stop()
	c.goOn(t, 100)
}
