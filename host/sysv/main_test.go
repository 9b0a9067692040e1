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
	proctest.Main(leakCheck{m}, map[string]func(*proctest.Child){
		"creator":    createOften,
		"ignoring":   cancelWhileIgnoringSignals,
		"diner":      dine,
		"holder":     hold,
		"limited":    meetLimits,
		"other-user": actAsOtherUser,
		"opener":     openOften,
		"orphaner":   leaveOrphan,
		"outliver":   outliveThread,
		"splitter":   holdAPart,
		"stormy":     acquireInStorm,
		"worker":     work,
	})
}

// A leakCheck fails a run of tests that leaves sets behind.
type leakCheck struct{ *testing.M }

func (c leakCheck) Run() int {
	code := c.M.Run()
	left, err := sysv.List()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, info := range left {
		_, byKey := used.Load(info.Key)
		_, byID := used.Load(info.ID)
		if byKey || byID {
			fmt.Fprintf(os.Stderr, "a test left a set behind: %+v\n", info)
			code = 1
		}
	}
	return code
}

// used contains the keys and ids of all sets created by tests.
var used sync.Map

// newKey returns an unused key. The set created with it is removed when the test ends.
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

// newSet returns a new private set.
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

// onCommand returns a flag that is true as soon as the parent sends a line.
func onCommand(c *proctest.Child) *atomic.Bool {
	var received atomic.Bool
	go func() {
		c.Receive()
		received.Store(true)
	}()
	return &received
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
			t.Errorf("got error %v, want %v", err, want)
		}
	}
}

// eventually waits until holds returns true.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("not true after a minute: %s", what)
		}
	}
}

func awaitWaiting(t testing.TB, set *sysv.Set, num, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d waiting", want), func() bool {
		forRise, forZero, err := set.Waiting(num)
		must(t, err)
		return forRise+forZero == want
	})
}

func awaitValue(t testing.TB, set *sysv.Set, num, want int) {
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

// threads returns the ids of the threads of a process.
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

// start runs an operation in a goroutine and returns a channel that receives its result.
func start(operation func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- operation() }()
	return ended
}

func await(t testing.TB, ended <-chan error) error {
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
