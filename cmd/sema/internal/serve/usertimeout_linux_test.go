package serve

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// dropPackets drops everything that arrives at a connection, without an acknowledgement, as if the
// machine had lost power.
func dropPackets(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 0}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// TestServe_DisappearedClientHoldsNothing checks that a permit bound to a connection is released soon
// after its client has disappeared without closing it. The kernel alone would wait for about 15
// minutes.
func TestServe_DisappearedClientHoldsNothing(t *testing.T) {
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
	dropPackets(t, c)
	p.waitFor("the permit is released", func() bool { return inUse() == 0.0 })
}
