//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"os/exec"
	"testing"

	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/internal/proctest"
)

func TestSemaphore_PythonMultiprocessing(t *testing.T) {
	t.Parallel()
	python := proctest.Need(t, "python3", "python3")
	p := peer{proctest.StartCommand(t, exec.Command(python, "testdata/peer.py")), t}

	ours := create(t, 2)
	p.do("ok", "open %s", ours.Name())
	p.do("2", "value")
	p.do("ok", "wait")
	wantState(t, ours, 1, 0)
	ours.TryWait()
	p.Send("wait")
	awaitSleepers(t, ours, 1)
	ours.Post()
	p.Expect("ok")
	served := startWait(t.Context(), ours)
	awaitSleepers(t, ours, 1)
	p.do("ok", "post")
	wantErr(t, result(t, served), nil)

	name := uniqueName(t)
	p.do("ok", "create %s 1", name)
	theirs, err := posix.Open(name)
	wantErr(t, err, nil)
	wantErr(t, theirs.Wait(t.Context()), nil)
	p.do("0", "value")
	wantErr(t, theirs.Post(), nil)
	p.do("1", "value")
}
