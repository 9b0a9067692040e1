//go:build linux && !sema_portable

package host_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/sema-go/sema/internal/proctest"
)

// TestHolders_DistinguishesContainers starts two processes with the same PID in
// different namespaces.
func TestHolders_DistinguishesContainers(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to create namespaces")
	}
	sem, dir, name := open(t, 4)
	for range 2 {
		cmd := proctest.Command(t, "user", dir, name, "4")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		user := proctest.StartCommand(t, cmd)
		user.Expect("open")
		user.Send("acquire 1")
		user.Expect("acquired 1")
	}
	holders, err := inspectHolders(sem)
	if err != nil || len(holders) != 2 {
		t.Errorf("%+v %v, want two", holders, err)
	}
}
