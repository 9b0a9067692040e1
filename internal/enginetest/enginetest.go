// Package enginetest starts the real servers that the engines of fleet stand on,
// for tests and for programs that measure or torment them. Each listens on
// loopback, at a port and in a directory of its own, and is gone when its test
// ends, or the [Scope] of its program, however that ends.
//
// The packages redistest, pgtest and etcdtest each know one kind of server. Here
// is what they share: a [Process] that can be killed, frozen and started again, a
// [Proxy] that is a bad network, and certificates.
//
// In the environment, SEMA_TEST_REQUIRE=1 has tests fail that would be skipped
// because a server is not installed. SEMA_TEST_REDIS_URL, SEMA_TEST_POSTGRES_URL
// and SEMA_TEST_ETCD_URL name servers for the suites that every engine has to
// pass; tests that kill a server or change its settings start their own all the
// same.
package enginetest

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
)

// A TB is what owns servers: a test, which is a [testing.TB], or the [Scope] of a
// program.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
}

// Need finds a program that Debian packages have. Without it the test is skipped,
// or fails where the environment says that nothing may be skipped.
func Need(t TB, program, debianPackages string) (path string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	const advice = "%v; apt-get install -y --no-install-recommends %s"
	if os.Getenv("SEMA_TEST_REQUIRE") == "1" {
		t.Fatalf(advice, err, debianPackages)
	}
	t.Skipf(advice, err, debianPackages)
	panic("not reached")
}

// Directory makes one that is removed at the end. It belongs to a user who has to
// run the server if this program is run by root; "" is for nobody else. (That user
// could not reach what testing.T has for it.)
func Directory(t TB, user string) string {
	t.Helper()
	path, err := os.MkdirTemp("", "enginetest")
	if err != nil {
		t.Fatalf("a directory for a server: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Fatalf("what a server leaves: %v", err)
		}
	})
	if err := own(path, user); err != nil {
		t.Fatalf("a directory for a server: %v", err)
	}
	return path
}

// Ports of servers are below those that systems give to clients, so that none of
// them takes the port of a server that is down for a while. A node of a Redis
// cluster also uses its port plus 10,000, which is kept free with each.
const (
	firstPort = 11_000
	lastPort  = 20_999
	second    = 10_000
)

// Port returns a port at which no program listens, and reserves it until the test
// ends, among all test processes of this machine: also while the server that uses it
// is down. Other programs may still take it, so that a test that starts a server
// has to check that it is the one that replies.
func Port(t TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		// The servers use TCP. The same port of UDP is free for the reservation, which
		// ends with the process.
		reservation, err := net.ListenPacket("udp", Loopback(port))
		if err != nil {
			continue
		}
		if isFree(port) && isFree(port+second) {
			t.Cleanup(func() { reservation.Close() })
			return port
		}
		reservation.Close()
	}
	t.Fatalf("no port from %d to %d is free", firstPort, lastPort)
	panic("not reached")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", Loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Loopback is the address of a port on this machine.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
