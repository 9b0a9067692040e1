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

// endings are the signals that ask a program to end. They also end a wait.
var endings = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// others are further signals that are passed on to a running command.
var others = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}

func numberOf(sig os.Signal) int {
	number, _ := sig.(syscall.Signal)
	return int(number)
}

func isContinue(sig os.Signal) bool { return sig == syscall.SIGCONT }

// A child is the command, which leads its own process group. The processes that it starts are in
// that group, unless they leave it.
type child struct {
	pid      int
	terminal *terminal
	lent     bool // the command has been given the terminal
	changes  chan change
}

// start starts the command. If its input and output are the terminal, the command is in the
// foreground from the start. Otherwise it gets the terminal when it is stopped for accessing it.
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
		// With Pdeathsig, the kernel kills the command when the thread that started it
		// ends. This thread does not end.
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

// follow sends the state changes of the child until it has ended.
func (c *child) follow() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(c.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // another wait has collected the child
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

// signal sends a signal to the process group, which may have ended already.
func (c *child) signal(sig os.Signal) {
	if number := numberOf(sig); number != 0 {
		_ = syscall.Kill(-c.pid, syscall.Signal(number))
	}
}

// terminate sends SIGTERM, and SIGCONT for stopped processes.
func (c *child) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT)
}

func (c *child) kill() { c.signal(syscall.SIGKILL) }

func (c *child) resume() { c.signal(syscall.SIGCONT) }

// killRest kills the processes that the command has started, after the command itself has ended.
// They were sent SIGTERM before, and have until the given time to end.
func (c *child) killRest(by time.Time) {
	for time.Now().Before(by) {
		if errors.Is(syscall.Kill(-c.pid, 0), syscall.ESRCH) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.kill()
}

// wantsTerminal reports whether the command was stopped for accessing the terminal, and may
// have it.
func (c *child) wantsTerminal(by os.Signal) bool {
	return (by == syscall.SIGTTIN || by == syscall.SIGTTOU) && c.terminal.isOurs()
}

func (c *child) giveTerminal() {
	c.lent = true
	c.terminal.give(c.pid)
}

// restoreTerminal gives the terminal to the command again after a stop, if the shell has put
// this process into the foreground.
func (c *child) restoreTerminal() {
	if c.lent && c.terminal.isOurs() {
		c.terminal.give(c.pid)
	}
}

// takeTerminal takes the terminal from a command that is not running.
func (c *child) takeTerminal() {
	if c.lent {
		c.terminal.take(c.pid)
	}
}

// stopTime bounds how long stopSelf waits. The system does not stop an orphaned process group,
// which no shell could continue.
const stopTime = 200 * time.Millisecond

// stopSelf stops this process and its group (the rest of a pipeline or a script), so that the
// shell gets the terminal. It returns when the process is continued. It uses SIGTTIN, which stops
// like SIGTSTP: SIGTSTP has a handler by now, which Go does not remove.
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
