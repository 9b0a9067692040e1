//go:build !unix

package runner

import (
	"os"
	"os/exec"
	"time"
)

// This system has no process groups, and no signal except that of Ctrl-C, which the system sends
// to the command as well. A command that has lost its permits is killed at once; the processes
// that it has started are not.

var (
	endings = []os.Signal{os.Interrupt}
	others  []os.Signal
)

func numberOf(os.Signal) int { return 2 }

func isContinue(os.Signal) bool { return false }

// A child is the command.
type child struct {
	process  *os.Process
	terminal terminal
	changes  chan change
}

func start(cmd *exec.Cmd) (*child, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{process: cmd.Process, changes: make(chan change)}
	go func() {
		_ = cmd.Wait() // the exit code contains the error
		c.changes <- change{ended: true, code: cmd.ProcessState.ExitCode()}
	}()
	return c, nil
}

func (c *child) signal(os.Signal) {}

func (c *child) terminate() { c.kill() }

func (c *child) kill() { _ = c.process.Kill() }

func (c *child) resume() {}

func (c *child) killRest(time.Time) {}

func (c *child) wantsTerminal(os.Signal) bool { return false }

func (c *child) giveTerminal() {}

func (c *child) restoreTerminal() {}

func (c *child) takeTerminal() {}

func (c *child) stopSelf() {}

// A terminal has no owner on this system.
type terminal struct{}

func (terminal) there() bool { return false }
