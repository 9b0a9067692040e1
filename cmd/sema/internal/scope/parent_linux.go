package scope

import (
	"os/exec"
	"syscall"
)

// dieWithParent: the kernel kills the command when the thread that has started it
// ends, so that thread has to stay. What the command has started by itself is not
// killed with it.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
