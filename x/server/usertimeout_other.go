//go:build !linux

package server

import (
	"net"
	"time"
)

// setUserTimeout does nothing: TCP_USER_TIMEOUT exists only on Linux. Elsewhere, a client that
// has disappeared is detected after the system's own timeout.
func setUserTimeout(*net.TCPConn, time.Duration) {}
