//go:build linux && !sema_portable

package host_test

import (
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
)

func TestInherit_PermitOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 3)
	bystander := mustAcquire(t, sem, 1)
	wrapper := startUser(t, dir, name, 3)
	wrapper.Send("acquire 1")
	wrapper.Expect("acquired 1")
	wrapper.Send("acquire 1")
	wrapper.Expect("acquired 1")
	wrapper.Send("run")
	reply := wrapper.Receive()
	child, err := strconv.Atoi(reply)
	if err != nil {
		t.Fatal(reply)
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	awaitStats(t, sem, 3, 0)
	wrapper.End()
	awaitStats(t, sem, 2, 0) // the bystander's permit and the inherited one, not the wrapper's other permit
	if holders, err := inspectHolders(sem); err != nil || len(holders) != 2 || holders[1].PID != wrapper.Pid {
		t.Errorf("%+v %v, want the killed wrapper as a holder", holders, err)
	}
	bystander.Release()
	awaitStats(t, sem, 1, 0)
	syscall.Kill(child, syscall.SIGKILL)
	awaitStats(t, sem, 0, 0)
}

func TestInherit_ReleaseFreesThePermit(t *testing.T) {
	t.Parallel()
	sem, dir, name := open(t, 5)
	other := startUser(t, dir, name, 5)
	// Leave a gap, so that the permit has two runs.
	a, b := mustAcquire(t, sem, 1), mustAcquire(t, sem, 1)
	a.Release()
	p := mustAcquire(t, sem, 4)
	cmd := exec.Command("sleep", "60")
	if err := host.Inherit(p, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	other.Send("try 1")
	other.Expect("full")
	wantErr(t, host.Inherit(p, cmd), sema.ErrInvalid) // already started
	wantErr(t, host.Inherit(p, nil), sema.ErrInvalid)
	first, rest, err := p.Split(1)
	if err != nil {
		t.Fatal(err)
	}
	first.Release()
	awaitStats(t, sem, 4, 0)
	rest.Release()
	other.Send("try 4")
	other.Expect("acquired 4")
	b.Release()
	wantErr(t, host.Inherit(p, cmd), sema.ErrInvalid)
	wantErr(t, host.Inherit(sema.Permit{}, cmd), sema.ErrInvalid)
}
