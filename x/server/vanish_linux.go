package server

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// giveUpAfter has the kernel end a connection on which nothing was acknowledged for
// that long, and 0 for as long as it would. It tries for a quarter of an hour
// otherwise, and a client whose machine has lost its power would hold its permit
// meanwhile.
//
// It is for connections that are written to now and then. On others it would count
// from the last word, however long ago that was.
func giveUpAfter(c *net.TCPConn, d time.Duration) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
}
