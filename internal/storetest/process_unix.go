//go:build unix

package storetest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// sysProcAttr makes a server end with this program, where the system supports
// that. It puts the server into a process group of its own, so that the server
// does not receive the signals of this program's terminal.
func sysProcAttr(p Program) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a, p.immediateSignal())
	uid, gid, other, err := otherUser(p.User)
	if other {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return a, err
}

// chownTo gives path to the user that will run the server.
func chownTo(path, name string) error {
	uid, gid, other, err := otherUser(name)
	if err != nil || !other {
		return err
	}
	return os.Chown(path, uid, gid)
}

// otherUser returns the user that runs a server that must not run as root.
func otherUser(name string) (uid, gid int, other bool, err error) {
	if name == "" || os.Getuid() != 0 {
		return 0, 0, false, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, false, fmt.Errorf("server must not run as root: %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err == nil, err
}

func (r *run) pause() error {
	if r.paused {
		return nil
	}
	if err := r.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r.paused = true
	return awaitStop(r.process.Pid)
}

func (r *run) resume() error {
	if !r.paused {
		return nil
	}
	r.paused = false
	return r.process.Signal(syscall.SIGCONT)
}
