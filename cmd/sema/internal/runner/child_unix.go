//go:build unix

package runner

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// endings are signals that tell a program to end. They also end a wait.
var endings = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// others are passed on to a command that runs.
var others = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}

func numberOf(sig os.Signal) int {
	number, _ := sig.(syscall.Signal)
	return int(number)
}

func isContinue(sig os.Signal) bool { return sig == syscall.SIGCONT }

// A child is the command: a process that leads a group of its own, in which all
// that it starts is, unless that leaves.
type child struct {
	pid      int
	terminal *terminal
	lent     bool // the terminal
	changes  chan change
}

// start starts the command. One that is to talk to the person at the terminal has
// the terminal from the beginning; others get it when they ask for it.
func start(cmd *exec.Cmd) (*child, error) {
	c := &child{terminal: openTerminal(), changes: make(chan change)}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if c.terminal.isOurs() && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, c.terminal.fd()
		c.lent = true
	}
	started := make(chan error)
	go func() {
		// The kernel may have been told to kill the command when the thread ends
		// that has started it. This one stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			c.follow()
		}
	}()
	if err := <-started; err != nil {
		c.terminal.keepFromStopping()
		c.takeTerminal()
		return nil, err
	}
	c.terminal.keepFromStopping()
	return c, nil
}

// follow sends the changes of the child until it has ended.
func (c *child) follow() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // another call of wait has collected it
			c.changes <- change{ended: true, code: exit.Failed}
			return
		case status.Stopped():
			c.changes <- change{by: status.StopSignal()}
		case status.Signaled():
			c.changes <- change{ended: true, code: codeOf(status.Signal())}
			return
		case status.Exited():
			c.changes <- change{ended: true, code: status.ExitStatus()}
			return
		}
	}
}

// signal sends a signal to the process group, which may have ended.
func (c *child) signal(sig os.Signal) {
	if number := numberOf(sig); number != 0 {
		_ = syscall.Kill(-c.pid, syscall.Signal(number))
	}
}

// terminate sends SIGTERM, and SIGCONT for processes that are stopped.
func (c *child) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

func (c *child) kill() { c.signal(syscall.SIGKILL) }

func (c *child) resume() { c.signal(syscall.SIGCONT) }

// killRest is when the command has ended and what it has started must, too: it has
// been told so, and has until some time.
func (c *child) killRest(by time.Time) {
	for time.Now().Before(by) {
		if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.kill()
}

// wantsTerminal reports whether the command was stopped for want of the terminal,
// and can have it.
func (c *child) wantsTerminal(by os.Signal) bool {
	return (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && c.terminal.isOurs()
}

func (c *child) giveTerminal() {
	c.lent = true
	c.terminal.give(c.pid)
}

// giveTerminalBack is after a stop, if the command had it and the shell has put
// this process into the foreground again.
func (c *child) giveTerminalBack() {
	if c.lent && c.terminal.isOurs() {
		c.terminal.give(c.pid)
	}
}

// takeTerminal is when the command does not run, and had it.
func (c *child) takeTerminal() {
	if c.lent {
		c.terminal.take(c.pid)
	}
}

// stopTime is within which a process that stops itself does so, if it can: the
// system does not let those stop whom nobody could tell to go on.
const stopTime = 200 * time.Millisecond

// stopSelf stops this process and its group, the rest of a pipeline or a script, so
// that the shell has the terminal. It returns when somebody has told it to go on.
// SIGTTIN stops as SIGTSTP does; that one has a handler by now, which Go does not
// take away again.
func (c *child) stopSelf() {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	_ = syscall.Kill(0, syscall.SIGTTIN)
	select {
	case <-goOn:
	case <-time.After(stopTime):
	}
}
