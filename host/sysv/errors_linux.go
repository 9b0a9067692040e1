//go:build amd64 || arm64 || riscv64 || loong64

package sysv

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/sema-go/sema"
)

// The errnos that the rest of the package checks for.
const (
	errWouldWait       = syscall.EAGAIN
	errTooManyOps      = syscall.E2BIG
	errOutOfRange      = syscall.ERANGE
	errNoSuchSemaphore = syscall.EFBIG
)

// reasonFor returns the reason for the errno of a call on the set.
func (s *Set) reasonFor(err error) *reason {
	r := &reason{text: err.Error(), is: []error{err}}
	switch err {
	case syscall.EAGAIN:
		r.is = append(r.is, sema.ErrFull)
		r.text, r.hint = "the operation would have to wait", "wait with Op, or reject the request"
	case syscall.EIDRM, syscall.EINVAL:
		// All other causes of EINVAL were checked before.
		r.is = append(r.is, sema.ErrClosed, fs.ErrNotExist)
		r.text, r.hint = "no such set: it was removed", "open or create it again; ipcs -s lists the existing sets"
	case syscall.ENOENT:
		r.text = "no such set"
		r.hint = "create it; ipcs -s lists the sets of this IPC namespace, and a container has its own"
	case syscall.EACCES:
		r.text = "permission denied: " + accessFacts(s)
		r.hint = "ask its owner to Chmod it, or run as a user with permission"
	case syscall.EPERM:
		r.text = "not permitted: " + accessFacts(s)
		r.hint = "only its owner, its creator and root may do that"
	case syscall.ERANGE:
		r.is = append(r.is, sema.ErrOverRelease)
		r.text = fmt.Sprintf("a value, or the undo sum of this process, would exceed %d", MaxValue)
		r.hint = "release only what was acquired"
	case syscall.E2BIG:
		r.is = append(r.is, sema.ErrInvalid)
		r.text = "too many operations at once: " + limitFacts(func(l Limits) string { return fmt.Sprintf("at most %d (SEMOPM)", l.Ops) })
		r.hint = "use fewer, or raise the third number of sysctl kernel.sem"
	case syscall.ENOSYS:
		r.text = "this kernel has no System V semaphores"
		r.hint = "it needs CONFIG_SYSVIPC; or use package host"
	}
	return r
}

// createReason returns the reason for the errno of semget, whose errnos have other
// meanings.
func createReason(key Key, err error) *reason {
	r := &reason{text: err.Error(), is: []error{err}}
	switch err {
	case syscall.EEXIST:
		r.text = "the key is in use"
		if info, ok := find(func(i Info) bool { return i.Key == key }); ok {
			r.text += fmt.Sprintf(": id %d, %d semaphores, mode %04o, owner %d:%d", info.ID, info.Semaphores, info.Mode, info.UID, info.GID)
		}
		r.hint = "open it; if it belongs to another program, use another key"
	case syscall.EINVAL:
		r.is = append(r.is, sema.ErrInvalid)
		r.text = "too many semaphores for a set: " + limitFacts(func(l Limits) string { return fmt.Sprintf("at most %d (SEMMSL)", l.SetSize) })
		r.hint = "use several sets, or raise the first number of sysctl kernel.sem"
	case syscall.ENOSPC:
		r.text = "no room left: " + limitFacts(func(l Limits) string {
			sets, semaphores := usage()
			return fmt.Sprintf("%d of %d sets (SEMMNI) and %d of %d semaphores (SEMMNS) are in use", sets, l.Sets, semaphores, l.Semaphores)
		})
		r.hint = "remove sets left behind (ipcs -s, ipcrm), or raise the second or fourth number of sysctl kernel.sem"
	default:
		return (&Set{id: unknownID, key: key}).reasonFor(err)
	}
	return r
}

// accessFacts returns the mode and the owner of the set, and the user of this process.
// It reads them from /proc, which needs no permission to read the set.
func accessFacts(s *Set) string {
	user := fmt.Sprintf("this process is %d:%d", os.Geteuid(), os.Getegid())
	info, ok := find(func(i Info) bool { return i.ID == s.id && (s.key == Private || i.Key == s.key) })
	if !ok {
		return user
	}
	return fmt.Sprintf("mode %04o, owner %d:%d, creator %d:%d, %s", info.Mode, info.UID, info.GID, info.CreatorUID, info.CreatorGID, user)
}

func limitFacts(format func(Limits) string) string {
	l, err := CurrentLimits()
	if err != nil {
		return err.Error()
	}
	return format(l)
}

func usage() (sets, semaphores int) {
	list, _ := List() // on error, count none: the numbers are only for an error text
	for _, info := range list {
		semaphores += info.Semaphores
	}
	return len(list), semaphores
}

func find(matches func(Info) bool) (Info, bool) {
	list, _ := List() // as in usage
	for _, info := range list {
		if matches(info) {
			return info, true
		}
	}
	return Info{}, false
}
