package serve

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// silence is after how long a client that acknowledges nothing is gone: a machine
// that was switched off says no goodbye, and may hold a permit by its connection.
const silence = 30 * time.Second

// noticeSilence is for a listener, and for the connections it accepts.
func noticeSilence(_, _ string, c syscall.RawConn) (err error) {
	bad := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
	if bad != nil {
		return bad
	}
	return err
}
