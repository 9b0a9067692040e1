package serve

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// vanish has nothing arrive at a connection any more: no acknowledgement goes back,
// as from a machine that has lost its power.
func vanish(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	var refused error
	if err := raw.Control(func(fd uintptr) {
		refused = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
	}); err != nil || refused != nil {
		t.Fatal(err, refused)
	}
}

// A permit that is bound to a connection is back soon after its client is gone, also
// if nobody says so. The kernel alone would try for a quarter of an hour.
func TestAClientThatVanishesHoldsNothing(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "--listen", anywhere)
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/semaphores/db/leases?capacity=1&ttl=2s&hold=connection HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	inUse := func() any { return p.want(http.StatusOK, "GET", "/v1/semaphores/db").body["in_use"] }
	if n, err := c.Read(make([]byte, 1000)); n == 0 || err != nil || inUse() != 1.0 {
		t.Fatalf("%d bytes, %v, %v in use", n, err, inUse())
	}
	vanish(t, c)
	p.waitFor("the permit is back", func() bool { return inUse() == 0.0 })
}
