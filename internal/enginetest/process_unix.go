//go:build unix

package enginetest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes has a server end with this program, where there is a way to have
// that, and not hear what a terminal says to this program.
func attributes(p Program) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithParent(a, p.atOnce())
	uid, gid, other, err := otherUser(p.User)
	if other {
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	return a, err
}

// own gives a path to who will run the server.
func own(path, name string) error {
	uid, gid, other, err := otherUser(name)
	if err != nil || !other {
		return err
	}
	return os.Chown(path, uid, gid)
}

// otherUser is who runs a server that refuses to be run by root.
func otherUser(name string) (uid, gid int, other bool, err error) {
	if name == "" || os.Getuid() != 0 {
		return 0, 0, false, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, false, fmt.Errorf("root may not run this server: %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, err == nil, err
}

func (r *run) freeze() error {
	if r.frozen {
		return nil
	}
	if err := r.process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	r.frozen = true
	return awaitStop(r.process.Pid)
}

func (r *run) thaw() error {
	if !r.frozen {
		return nil
	}
	r.frozen = false
	return r.process.Signal(syscall.SIGCONT)
}
