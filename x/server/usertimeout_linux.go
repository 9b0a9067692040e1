package server

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout sets TCP_USER_TIMEOUT: the kernel closes a connection after sent data was not
// acknowledged for that long. 0 restores the system's default, about 15 minutes: for that
// long, a client whose machine has lost power would hold its permit.
//
// Use it only for connections that are written to regularly. On other connections, the
// timeout would count from the last message, however long ago that was.
func setUserTimeout(c *net.TCPConn, d time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
