// Package storetest starts the real servers behind the stores of package fleet,
// for tests, benchmarks and fault-injection programs. Each server listens on
// loopback, with its own port and directory. It is stopped and its directory
// removed when the test or the [Scope] that started it ends, for whatever
// reason.
//
// The packages redistest, pgtest and etcdtest each start one kind of server.
// This package contains what they share: a [Process] that can be killed, paused
// and restarted, a [Proxy] that injects network faults, and certificates.
//
// If the environment variable SEMA_TEST_REQUIRE is 1, tests fail instead of
// being skipped when a server is not installed. SEMA_TEST_REDIS_URL,
// SEMA_TEST_POSTGRES_URL and SEMA_TEST_ETCD_URL name existing servers for the
// conformance suites of the stores. Tests that kill a server or change its
// settings always start their own.
package storetest

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// A TB owns servers: a test, which is a [testing.TB], or the [Scope] of a
// program.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Cleanup(func())
}

// Need returns the path of a program that is part of Debian packages. If the
// program is not installed, Need skips the test, or fails it if
// SEMA_TEST_REQUIRE is 1.
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

// Directory creates a directory that is removed when t ends. If this program
// runs as root, the directory belongs to user; "" leaves it to root.
// ([testing.T.TempDir] is not accessible to that user.)
func Directory(t TB, user string) string {
	t.Helper()
	path, err := os.MkdirTemp("", "storetest")
	if err != nil {
		t.Fatalf("create the directory of a server: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(path); err != nil {
			t.Fatalf("remove the directory of a server: %v", err)
		}
	})
	if err := chownTo(path, user); err != nil {
		t.Fatalf("change the owner of the directory of a server: %v", err)
	}
	return path
}

// Server ports are below the ephemeral port range, so no client socket takes
// the port of a server that is down for a while. A node of a Redis cluster also
// uses its port plus 10,000; Port keeps that port free too.
const (
	firstPort        = 11_000
	lastPort         = 20_999
	clusterBusOffset = 10_000
)

// Port returns a TCP port on which no program listens. It reserves the port
// among all test processes of this machine until the test ends, also while the
// server that uses it is down. Other programs may still take the port, so a
// test that starts a server must check that its own server replies.
func Port(t TB) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		// The servers use TCP. The UDP port of the same number serves as the
		// reservation; it ends with the process.
		reservation, err := net.ListenPacket("udp", Loopback(port))
		if err != nil {
			continue
		}
		if isFree(port) && isFree(port+clusterBusOffset) {
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

// Loopback returns the address of a port on this machine.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// WantError fails the test unless err contains each of the parts.
func WantError(t TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Fatalf("%q does not contain %q", err, part)
		}
	}
}
