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

const nobody = 65534

func TestOthersMayDoWhatTheModeSays(t *testing.T) {
	t.Parallel()
	needRoot(t)
	key := newKey(t)
	set, err := sysv.Create(key, 0o600, 5)
	must(t, err)
	own := newKey(t)
	p := proctest.Start(t, "nobody", fmt.Sprint(int(key)), fmt.Sprint(int(own)))
	p.Expect("nothing allowed")
	must(t, set.Chmod(0o644))
	p.Say("reading is")
	p.Expect("reading allowed")
	must(t, set.Chmod(0o666))
	p.Say("changing is")
	p.Expect("changing allowed")
	must(t, set.Chown(nobody, -1))
	p.Say("it is yours")
	p.Expect("removed")
	_, err = set.Values()
	mustBe(t, err, sema.ErrClosed)
}

func actAsNobody(c *proctest.Child) {
	c.Must(syscall.Setgroups(nil))
	c.Must(syscall.Setgid(nobody))
	c.Must(syscall.Setuid(nobody))
	key, own := sysv.Key(number(c, 0)), sysv.Key(number(c, 1))
	forbidden := func(err error, errno syscall.Errno, facts ...string) {
		c.Must(is(err, fs.ErrPermission, errno))
		for _, fact := range facts {
			if !strings.Contains(err.Error()+" "+sema.Hint(err), fact) {
				c.Must(fmt.Errorf("%q does not tell %q", err, fact))
			}
		}
	}
	_, err := sysv.Open(key)
	forbidden(err, syscall.EACCES, key.String(), "mode 0600", "owner 0:0", "this process is 65534:65534", "Chmod")

	// One that its creator may not change cannot be initialised, and must not
	// be left behind.
	_, err = sysv.Create(own, 0o400, 1)
	forbidden(err, syscall.EACCES)
	_, err = sysv.OpenAny(own)
	c.Must(is(err, fs.ErrNotExist))

	c.Say("nothing allowed")
	c.Hear()
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
	c.Say("reading allowed")
	c.Hear()
	c.Must(set.TryOp(sysv.Op{Delta: -1}))
	forbidden(set.Chmod(0o600), syscall.EPERM, "owner 0:0", "creator 0:0", "only its owner")
	forbidden(set.Chown(nobody, nobody), syscall.EPERM)
	forbidden(set.Remove(), syscall.EPERM)
	forbidden(sysv.Remove(set.ID()), syscall.EPERM)
	c.Say("changing allowed")
	c.Hear()
	c.Must(set.Remove())
	c.Say("removed")
}

// is is mustBe for children.
func is(err error, wants ...error) error {
	for _, want := range wants {
		if !errors.Is(err, want) {
			return fmt.Errorf("got error %v, want one that is %v", err, want)
		}
	}
	return nil
}

// TestLimitsAreNamed has its own IPC namespace, and so limits of its own.
func TestLimitsAreNamed(t *testing.T) {
	t.Parallel()
	needRoot(t)
	set := newSet(t, 1)
	cmd := proctest.Command(t, "limited", idOf(set))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWIPC}
	proctest.StartCommand(t, cmd).Expect("all named")
	expectValues(t, set, 1)
}

func meetLimits(c *proctest.Child) {
	_, err := sysv.OpenID(number(c, 0))
	c.Must(is(err, fs.ErrNotExist)) // of another namespace
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
				c.Must(fmt.Errorf("%q does not tell %q", err, fact))
			}
		}
	}
	_, err = sysv.Create(77, 0o600, 1, 2, 3, 4, 5, 6)
	named(err, []string{"create 6 semaphores", "at most 5 (SEMMSL)", "kernel.sem"}, sema.ErrInvalid, syscall.EINVAL)

	// More values than operations in a semop.
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
	c.Say("all named")
}
