//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

// startPartner starts the C program.
func startPartner(t *testing.T) *proctest.Process {
	t.Helper()
	return proctest.StartCommand(t, exec.Command(proctest.CompileC(t, "testdata/partner.c")))
}

func TestKeyOf_MatchesFtok(t *testing.T) {
	t.Parallel()
	partner := startPartner(t)
	for i, project := range []byte{1, 'x', 0xF0} {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		must(t, os.WriteFile(path, nil, 0o600))
		key, err := sysv.KeyOf(path, project)
		must(t, err)
		partner.Send("ftok %d %s", project, path)
		partner.Expect(fmt.Sprint(int(key)))
	}
}

func TestGate_ExchangesPermitsWithC(t *testing.T) {
	t.Parallel()
	partner := startPartner(t)
	key := newKey(t)
	set, err := sysv.Create(key, 0o600, 2)
	must(t, err)
	gate, err := sysv.AsGate(set, 0, 2)
	must(t, err)
	partner.Send("open %d", key)
	partner.Expect("opened")
	partner.Send("value 0")
	partner.Expect("2")

	// Go holds, C waits.
	permit := acquire(t, gate, 2)
	partner.Send("try 0 -1 1")
	partner.Expect("full")
	partner.Send("op 0 -1 1")
	awaitWaiting(t, set, 0, 1)
	permit.Release()
	partner.Expect("done")

	// C holds, Go waits.
	_, err = gate.TryAcquire(background, 2)
	mustBe(t, err, sema.ErrFull)
	all := make(chan sema.Permit, 1)
	go func() { all <- acquire(t, gate, 2) }()
	awaitWaiting(t, set, 0, 1)
	partner.Send("op 0 1 1")
	partner.Expect("done")
	(<-all).Release()

	// The Go process ends, C is served.
	holder := proctest.Start(t, "holder", idOf(set), "2")
	holder.Expect("holding")
	partner.Send("op 0 -2 1")
	awaitWaiting(t, set, 0, 1)
	holder.End()
	partner.Expect("done")

	// The C process ends, Go is served.
	go func() { all <- acquire(t, gate, 1) }()
	awaitWaiting(t, set, 0, 1)
	partner.End()
	(<-all).Release()
	expectValues(t, set, 2)
}

func TestOpenAny_OpensSetsInitialisedBySemctl(t *testing.T) {
	t.Parallel()
	partner := startPartner(t)
	key := newKey(t)
	partner.Send("create %d 7", key)
	partner.Expect("created")
	_, err := sysv.Open(key)
	mustBe(t, err, sysv.ErrUninitialised)
	set, err := sysv.OpenAny(key)
	must(t, err)
	expectValues(t, set, 7)
	must(t, set.TryOp(sysv.Op{Delta: -1}))
	_, err = sysv.Open(key) // an operation was executed
	must(t, err)
}

func TestSet_IpcsListsAndIpcrmRemoves(t *testing.T) {
	t.Parallel()
	proctest.Need(t, "ipcs", "util-linux")
	proctest.Need(t, "ipcrm", "util-linux")
	key := newKey(t)
	set, err := sysv.Create(key, 0o640, 1, 2, 3)
	must(t, err)
	listed := func() []string {
		out, err := exec.Command("ipcs", "-s").Output()
		must(t, err)
		for line := range strings.Lines(string(out)) {
			if fields := strings.Fields(line); len(fields) == 5 && fields[0] == key.String() {
				return fields
			}
		}
		return nil
	}
	if got := listed(); got == nil || got[1] != idOf(set) || got[3] != "640" || got[4] != "3" {
		t.Errorf("ipcs lists %q", got)
	}
	waiting := start(func() error { return set.Op(background, sysv.Op{Delta: -2}) })
	awaitWaiting(t, set, 0, 1)
	if out, err := exec.Command("ipcrm", "-s", idOf(set)).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	mustBe(t, await(t, waiting), sema.ErrClosed)
	if got := listed(); got != nil {
		t.Errorf("ipcs still lists %q", got)
	}
}
