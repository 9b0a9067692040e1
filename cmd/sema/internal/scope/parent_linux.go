package scope

import (
	"os/exec"
	"syscall"
)

// killWithParent sets Pdeathsig: the kernel kills the command when the thread that started it
// ends. Processes that the command has started are not killed with it.
func killWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
