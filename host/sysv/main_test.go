//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(cleanly{m}, map[string]func(*proctest.Child){
		"creator":  createOften,
		"deaf":     cancelWhileDeaf,
		"diner":    dine,
		"holder":   hold,
		"limited":  meetLimits,
		"nobody":   actAsNobody,
		"opener":   openOften,
		"orphaner": leaveAnOrphan,
		"outliver": outliveTheThread,
		"splitter": holdAPart,
		"stormy":   acquireInStorm,
		"worker":   work,
	})
}

// cleanly fails a run of tests that leaves sets behind.
type cleanly struct{ *testing.M }

func (c cleanly) Run() int {
	code := c.M.Run()
	left, err := sysv.List()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, info := range left {
		_, ours := used.Load(info.Key)
		_, too := used.Load(info.ID)
		if ours || too {
			fmt.Fprintf(os.Stderr, "a test left a set behind: %+v\n", info)
			code = 1
		}
	}
	return code
}

// used has the keys and ids of all sets made by tests.
var used sync.Map

// newKey is a key nobody uses. What is created with it is removed in the end.
func newKey(t testing.TB) sysv.Key {
	key := sysv.Key(rand.Int32N(1<<31-2) + 1)
	used.Store(key, true)
	t.Cleanup(func() {
		if set, err := sysv.OpenAny(key); err == nil {
			remove(t, set)
		}
	})
	return key
}

// newSet is a set of the test's own.
func newSet(t testing.TB, values ...int) *sysv.Set {
	t.Helper()
	set, err := sysv.Create(sysv.Private, 0o600, values...)
	if err != nil {
		t.Fatal(err)
	}
	used.Store(set.ID(), true)
	t.Cleanup(func() { remove(t, set) })
	return set
}

func remove(t testing.TB, set *sysv.Set) {
	if err := set.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func idOf(set *sysv.Set) string { return strconv.Itoa(set.ID()) }

// openArg opens the set whose id is an argument of a child.
func openArg(c *proctest.Child, i int) *sysv.Set {
	id, err := strconv.Atoi(c.Args[i])
	c.Must(err)
	set, err := sysv.OpenID(id)
	c.Must(err)
	return set
}

func number(c *proctest.Child, i int) int {
	n, err := strconv.Atoi(c.Args[i])
	c.Must(err)
	return n
}

// told is true from the moment the parent says anything.
func told(c *proctest.Child) *atomic.Bool {
	var said atomic.Bool
	go func() {
		c.Hear()
		said.Store(true)
	}()
	return &said
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t testing.TB, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want one that is %v", err, want)
		}
	}
}

// eventually waits for what must come about by itself.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not after a minute: %s", what)
		}
	}
}

func untilWaiting(t testing.TB, set *sysv.Set, num, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d waiting", want), func() bool {
		forRise, forZero, err := set.Waiting(num)
		must(t, err)
		return forRise+forZero == want
	})
}

func untilValue(t testing.TB, set *sysv.Set, num, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("value %d", want), func() bool {
		value, err := set.Value(num)
		must(t, err)
		return value == want
	})
}

func expectValues(t testing.TB, set *sysv.Set, want ...int) {
	t.Helper()
	got, err := set.Values()
	must(t, err)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("values are %v, want %v", got, want)
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can change users and namespaces")
	}
}

// threads of a process.
func threads(t testing.TB, pid int) []int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	must(t, err)
	var tids []int
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		must(t, err)
		tids = append(tids, tid)
	}
	return tids
}

func signalThread(pid, tid int, sig syscall.Signal) {
	syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(pid), uintptr(tid), uintptr(sig))
}

// later runs an operation that has to wait and delivers how it ended.
func later(operation func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- operation() }()
	return ended
}

func soon(t testing.TB, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("still waiting after a minute")
	}
	panic("not reached")
}

var background = context.Background()
