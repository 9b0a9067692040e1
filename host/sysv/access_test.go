//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

const otherUser = 65534

func TestSet_ModeLimitsOtherUsers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	key := newKey(t)
	set, err := sysv.Create(key, 0o600, 5)
	must(t, err)
	own := newKey(t)
	p := proctest.Start(t, "other-user", fmt.Sprint(int(key)), fmt.Sprint(int(own)))
	p.Expect("nothing allowed")
	must(t, set.Chmod(0o644))
	p.Send("reading allowed")
	p.Expect("reading allowed")
	must(t, set.Chmod(0o666))
	p.Send("changing allowed")
	p.Expect("changing allowed")
	must(t, set.Chown(otherUser, -1))
	p.Send("owner changed")
	p.Expect("removed")
	_, err = set.Values()
	mustBe(t, err, sema.ErrClosed)
}

func actAsOtherUser(c *proctest.Child) {
	c.Must(syscall.Setgroups(nil))
	c.Must(syscall.Setgid(otherUser))
	c.Must(syscall.Setuid(otherUser))
	key, own := sysv.Key(number(c, 0)), sysv.Key(number(c, 1))
	forbidden := func(err error, errno syscall.Errno, facts ...string) {
		c.Must(is(err, fs.ErrPermission, errno))
		for _, fact := range facts {
			if !strings.Contains(err.Error()+" "+sema.Hint(err), fact) {
				c.Must(fmt.Errorf("%q does not contain %q", err, fact))
			}
		}
	}
	_, err := sysv.Open(key)
	forbidden(err, syscall.EACCES, key.String(), "mode 0600", "owner 0:0", "this process is 65534:65534", "Chmod")

	// A set that its creator may not change cannot be initialised, and must not be
	// left behind.
	_, err = sysv.Create(own, 0o400, 1)
	forbidden(err, syscall.EACCES)
	_, err = sysv.OpenAny(own)
	c.Must(is(err, fs.ErrNotExist))

	c.Send("nothing allowed")
	c.Receive()
	set, err := sysv.Open(key)
	c.Must(err)
	_, err = set.Values()
	c.Must(err)
	forbidden(set.TryOp(sysv.Op{Delta: -1}), syscall.EACCES, "mode 0644")
	forbidden(set.SetValue(0, 1), syscall.EACCES)
	gate, err := sysv.AsGate(set, 0, 5)
	c.Must(err)
	_, err = gate.Acquire(background, 1)
	forbidden(err, syscall.EACCES, "acquire 1 of 5", "mode 0644")
	c.Send("reading allowed")
	c.Receive()
	c.Must(set.TryOp(sysv.Op{Delta: -1}))
	forbidden(set.Chmod(0o600), syscall.EPERM, "owner 0:0", "creator 0:0", "only its owner")
	forbidden(set.Chown(otherUser, otherUser), syscall.EPERM)
	forbidden(set.Remove(), syscall.EPERM)
	forbidden(sysv.Remove(set.ID()), syscall.EPERM)
	c.Send("changing allowed")
	c.Receive()
	c.Must(set.Remove())
	c.Send("removed")
}

// is returns an error unless err matches all of wants.
func is(err error, wants ...error) error {
	for _, want := range wants {
		if !errors.Is(err, want) {
			return fmt.Errorf("got error %v, want %v", err, want)
		}
	}
	return nil
}

// TestSet_ErrorsContainLimits runs a process in its own IPC namespace, which has its
// own limits.
func TestSet_ErrorsContainLimits(t *testing.T) {
	t.Parallel()
	needRoot(t)
	set := newSet(t, 1)
	cmd := proctest.Command(t, "limited", idOf(set))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC}
	proctest.StartCommand(t, cmd).Expect("all checked")
	expectValues(t, set, 1)
}

func meetLimits(c *proctest.Child) {
	_, err := sysv.OpenID(number(c, 0))
	c.Must(is(err, fs.ErrNotExist)) // the set is in another namespace
	if list, err := sysv.List(); err != nil || len(list) > 0 {
		c.Must(fmt.Errorf("a new IPC namespace lists %v, %v", list, err))
	}
	c.Must(os.WriteFile("/proc/sys/kernel/sem", []byte("5 8 3 2"), 0))
	limits, err := sysv.CurrentLimits()
	c.Must(err)
	if want := (sysv.Limits{SetSize: 5, Semaphores: 8, Ops: 3, Sets: 2}); limits != want {
		c.Must(fmt.Errorf("limits are %+v, want %+v", limits, want))
	}
	named := func(err error, facts []string, wants ...error) {
		c.Must(is(err, wants...))
		for _, fact := range facts {
			if !strings.Contains(err.Error()+" "+sema.Hint(err), fact) {
				c.Must(fmt.Errorf("%q does not contain %q", err, fact))
			}
		}
	}
	_, err = sysv.Create(77, 0o600, 1, 2, 3, 4, 5, 6)
	named(err, []string{"create 6 semaphores", "at most 5 (SEMMSL)", "kernel.sem"}, sema.ErrInvalid, syscall.EINVAL)

	// More values than one semop allows.
	_, err = sysv.Create(78, 0o600, 1, 2, 3, 0, 5)
	c.Must(err)
	set, err := sysv.Open(78)
	c.Must(err)
	if values, err := set.Values(); err != nil || !slices.Equal(values, []int{1, 2, 3, 0, 5}) {
		c.Must(fmt.Errorf("values are %v, %v", values, err))
	}
	up := sysv.Op{Num: 0, Delta: 1}
	named(set.TryOp(up, up, up, up), []string{"0:+1, 0:+1", "at most 3 (SEMOPM)", "kernel.sem"}, sema.ErrInvalid, syscall.E2BIG)

	_, err = sysv.Create(79, 0o600, 1, 2, 3, 4)
	named(err, []string{"1 of 2 sets", "5 of 8 semaphores", "ipcrm"}, syscall.ENOSPC)
	_, err = sysv.Create(79, 0o600, 1)
	c.Must(err)
	_, err = sysv.Create(80, 0o600, 1)
	named(err, []string{"2 of 2 sets", "6 of 8 semaphores", "ipcrm"}, syscall.ENOSPC)
	c.Send("all checked")
}
