//go:build unix

package runner

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the controlling terminal of this process. One process group at a time is in its
// foreground: that group reads from it, and receives Ctrl-C and Ctrl-Z.
type terminal struct{ file *os.File } // nil: no terminal

func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return &terminal{}
	}
	return &terminal{file}
}

func (t *terminal) there() bool { return t.file != nil }

func (t *terminal) fd() int { return int(t.file.Fd()) }

// isOurs reports whether the group of this process is in the foreground.
func (t *terminal) isOurs() bool { return t.has(unix.Getpgrp()) }

func (t *terminal) has(group int) bool {
	if t.file == nil {
		return false
	}
	foreground, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// give makes a group the foreground group.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group)
}

// take makes this process's group the foreground group, if the group from is in the foreground.
func (t *terminal) take(from int) {
	if t.has(from) {
		t.give(unix.Getpgrp())
	}
}

// keepFromStopping lets this process change the foreground group while it is in the background.
// Call it only after the command was started: a command would inherit the setting.
func (t *terminal) keepFromStopping() {
	if t.there() {
		signal.Ignore(syscall.SIGTTOU)
	}
}

// isTerminal reports whether a file is the controlling terminal.
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}
