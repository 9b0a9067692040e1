//go:build linux && (amd64 || arm64 || riscv64 || loong64)

package sysv_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/sysv"
	"github.com/sema-go/sema/internal/proctest"
)

func TestOpen_FindsASetByKeyAndID(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	_, err := sysv.Open(key)
	mustBe(t, err, fs.ErrNotExist, syscall.ENOENT)
	created, err := sysv.Create(key, 0o600, 1, 2, 3)
	must(t, err)
	_, err = sysv.Create(key, 0o600, 1)
	mustBe(t, err, fs.ErrExist, syscall.EEXIST)

	byKey, err := sysv.Open(key)
	must(t, err)
	byID, err := sysv.OpenID(created.ID())
	must(t, err)
	either, err := sysv.OpenOrCreate(key, 0o600, 9, 9, 9)
	must(t, err)
	for _, set := range []*sysv.Set{created, byKey, byID, either} {
		if set.ID() != created.ID() || set.Key() != key || set.Len() != 3 || set.Name() != "sysv "+key.String() {
			t.Errorf("opened %+v, want %+v", set, created)
		}
		expectValues(t, set, 1, 2, 3)
	}
	_, err = sysv.OpenOrCreate(key, 0o600, 1, 2)
	mustBe(t, err, sema.ErrInvalid)
	_, err = sysv.OpenOrCreate(key, 0o600, 1, 2, 3, 4)
	mustBe(t, err, sema.ErrInvalid)
}

func TestCreate_PrivateSetsAreDistinct(t *testing.T) {
	t.Parallel()
	a, b := newSet(t, 1), newSet(t, 2)
	if a.ID() == b.ID() || a.Name() == b.Name() {
		t.Errorf("two private sets are the same: %v and %v", a, b)
	}
	_, err := sysv.Open(sysv.Private)
	mustBe(t, err, sema.ErrInvalid)
	c, err := sysv.OpenOrCreate(sysv.Private, 0o600, 3)
	must(t, err)
	used.Store(c.ID(), true)
	defer remove(t, c)
	expectValues(t, c, 3)
}

func TestCreate_InitialisesAllValues(t *testing.T) {
	t.Parallel()
	for _, values := range [][]int{{0}, {0, 0, 0}, {sysv.MaxValue}, {0, 5, 0}, slices.Repeat([]int{0, 7}, 300), slices.Repeat([]int{sysv.MaxValue}, 700)} {
		key := newKey(t)
		created, err := sysv.Create(key, 0o600, values...)
		must(t, err)
		set, err := sysv.Open(key)
		must(t, err)
		expectValues(t, set, values...)
		// The creator must have executed an operation.
		info, err := created.Stat()
		must(t, err)
		if info.LastOp.IsZero() || time.Since(info.LastOp) > time.Minute {
			t.Errorf("time of the last operation is %v", info.LastOp)
		}
	}
}

func TestCreate_RejectsInvalidArguments(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	for _, try := range []func() (*sysv.Set, error){
		func() (*sysv.Set, error) { return sysv.Create(key, 0o600) },
		func() (*sysv.Set, error) { return sysv.Create(key, 0o600, -1) },
		func() (*sysv.Set, error) { return sysv.Create(key, 0o600, 1, sysv.MaxValue+1) },
		func() (*sysv.Set, error) { return sysv.Create(key, fs.ModeDir|0o600, 1) },
	} {
		_, err := try()
		mustBe(t, err, sema.ErrInvalid)
	}
	_, err := sysv.OpenAny(key)
	mustBe(t, err, fs.ErrNotExist)
}

// many contains so many values that setting them one by one takes long.
var many = slices.Repeat([]int{1, 2, 3, 4}, 100)

// TestOpen_NeverReturnsAnUninitialisedSet runs processes that repeatedly open a set that
// is repeatedly created and removed.
func TestOpen_NeverReturnsAnUninitialisedSet(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	openers := []*proctest.Process{
		proctest.Start(t, "opener", fmt.Sprint(int(key))), proctest.Start(t, "opener", fmt.Sprint(int(key))),
	}
	for _, p := range openers {
		p.Expect("opening")
	}
	var all atomic.Bool
	go func() {
		defer all.Store(true) // also if a process sends nothing, which fails the test
		for _, p := range openers {
			p.Expect("opened one")
		}
	}()
	for end := time.Now().Add(700 * time.Millisecond); !all.Load() || time.Now().Before(end); {
		set, err := sysv.Create(key, 0o600, many...)
		must(t, err)
		expectValues(t, set, many...)
		time.Sleep(200 * time.Microsecond)
		must(t, set.Remove())
	}
	for _, p := range openers {
		p.Send("stop")
		var opened int
		if fmt.Sscanf(p.Receive(), "opened %d", &opened); opened == 0 {
			t.Error("an opener never opened a set: the test checked nothing")
		}
	}
}

func openOften(c *proctest.Child) {
	key := sysv.Key(number(c, 0))
	stop, opened := onCommand(c), 0
	c.Send("opening")
	for !stop.Load() {
		set, err := sysv.Open(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		c.Must(err)
		values, err := set.Values()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		c.Must(err)
		if !slices.Equal(values, many) {
			c.Must(fmt.Errorf("found a set with the values %v", values))
		}
		if opened++; opened == 1 {
			c.Send("opened one")
		}
	}
	c.Send("opened %d", opened)
}

func TestOpenOrCreate_OneOfManyCreates(t *testing.T) {
	t.Parallel()
	const creators, rounds = 6, 20
	var processes []*proctest.Process
	for range creators {
		processes = append(processes, proctest.Start(t, "creator"))
	}
	for range rounds {
		key := newKey(t)
		for _, p := range processes {
			p.Send("%d", key)
		}
		id := processes[0].Receive()
		for _, p := range processes[1:] {
			p.Expect(id)
		}
		set, err := sysv.Open(key)
		must(t, err)
		expectValues(t, set, 100-creators, 5, 7)
		must(t, set.Remove())
	}
}

func createOften(c *proctest.Child) {
	for {
		var key sysv.Key
		fmt.Sscan(c.Receive(), &key)
		set, err := sysv.OpenOrCreate(key, 0o600, 100, 5, 7)
		c.Must(err)
		c.Must(set.TryOp(sysv.Op{Num: 0, Delta: -1}, sysv.Op{Num: 1, Delta: -5}, sysv.Op{Num: 2, Delta: -7},
			sysv.Op{Num: 1, Delta: +5}, sysv.Op{Num: 2, Delta: +7}))
		c.Send("%d", set.ID())
	}
}

// createBare creates a set without initialising it.
func createBare(t *testing.T, key sysv.Key) {
	t.Helper()
	const create, exclusive = 0o1000, 0o2000
	if _, _, errno := syscall.Syscall(syscall.SYS_SEMGET, uintptr(key), 2, create|exclusive|0o600); errno != 0 {
		t.Fatal(errno)
	}
}

func TestOpen_ReportsAnUninitialisedSet(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	createBare(t, key)
	_, err := sysv.Open(key)
	mustBe(t, err, sysv.ErrUninitialised)
	_, err = sysv.OpenOrCreate(key, 0o600, 1, 2)
	mustBe(t, err, sysv.ErrUninitialised)
	set, err := sysv.OpenAny(key)
	must(t, err)
	must(t, set.Remove())
	_, err = sysv.OpenOrCreate(key, 0o600, 1, 2)
	must(t, err)
}

func TestOpen_WaitsForASlowCreator(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	createBare(t, key)
	var opened *sysv.Set
	ended := start(func() (err error) {
		opened, err = sysv.Open(key)
		return err
	})
	select {
	case err := <-ended:
		t.Fatalf("opened an uninitialised set (%v)", err)
	case <-time.After(100 * time.Millisecond):
	}
	slow, err := sysv.OpenAny(key)
	must(t, err)
	must(t, slow.TryOp(sysv.Op{Num: 0, Delta: 3}, sysv.Op{Num: 1, Delta: 4}))
	must(t, await(t, ended))
	expectValues(t, opened, 3, 4)
}

func TestSet_RemovedIsClosed(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1)
	must(t, set.Remove())
	_, valueErr := set.Value(0)
	_, valuesErr := set.Values()
	_, _, waitingErr := set.Waiting(0)
	_, statErr := set.Stat()
	_, openErr := sysv.OpenID(set.ID())
	for _, err := range []error{
		valueErr, valuesErr, waitingErr, statErr, openErr,
		set.Op(background, sysv.Op{Delta: -1}), set.TryOp(sysv.Op{Delta: -1}),
		set.SetValue(0, 1), set.SetValues(1), set.Chmod(0o600), set.Chown(-1, -1), set.Remove(), sysv.Remove(set.ID()),
	} {
		mustBe(t, err, sema.ErrClosed, fs.ErrNotExist)
	}
}

func TestSet_SetsAndReadsValues(t *testing.T) {
	t.Parallel()
	set := newSet(t, 1, 2, 3)
	must(t, set.SetValue(1, 20))
	expectValues(t, set, 1, 20, 3)
	must(t, set.SetValues(4, 5, sysv.MaxValue))
	if v, err := set.Value(2); err != nil || v != sysv.MaxValue {
		t.Errorf("value is %d, %v", v, err)
	}
	if pid, err := set.LastPid(2); err != nil || pid != os.Getpid() {
		t.Errorf("last pid is %d, %v; want %d", pid, err, os.Getpid())
	}
	for _, err := range []error{set.SetValue(0, -1), set.SetValue(0, sysv.MaxValue+1), set.SetValues(1, 2), set.SetValues(1, 2, -3)} {
		mustBe(t, err, sema.ErrInvalid)
	}
	mustBe(t, set.SetValue(0, -1), syscall.ERANGE)
	_, below := set.Value(-1)
	_, above := set.LastPid(3)
	for _, err := range []error{below, above, set.SetValue(3, 1), set.TryOp(sysv.Op{Num: 3, Delta: 1}), set.Op(background, sysv.Op{Num: -1, Delta: 1})} {
		mustBe(t, err, sema.ErrInvalid, syscall.EFBIG)
	}
	expectValues(t, set, 4, 5, sysv.MaxValue)
}

func TestSet_StatAndList(t *testing.T) {
	t.Parallel()
	begin := time.Now().Truncate(time.Second)
	key := newKey(t)
	set, err := sysv.Create(key, 0o640, 1, 2, 3)
	must(t, err)
	must(t, set.Chmod(0o664))
	if os.Geteuid() == 0 {
		must(t, set.Chown(12, -1))
		must(t, set.Chown(-1, 34))
	}
	info, err := set.Stat()
	must(t, err)
	want := sysv.Info{ID: set.ID(), Key: key, Semaphores: 3, Mode: 0o664, UID: os.Geteuid(), GID: os.Getegid(),
		CreatorUID: os.Geteuid(), CreatorGID: os.Getegid(), LastOp: info.LastOp, Changed: info.Changed}
	if os.Geteuid() == 0 {
		want.UID, want.GID = 12, 34
	}
	if info != want {
		t.Errorf("stat %+v, want %+v", info, want)
	}
	for _, moment := range []time.Time{info.LastOp, info.Changed} {
		if moment.Before(begin) || moment.After(time.Now()) {
			t.Errorf("%v is not between %v and now", moment, begin)
		}
	}
	list, err := sysv.List()
	must(t, err)
	if !slices.Contains(list, info) {
		t.Errorf("list %+v does not contain %+v", list, info)
	}
	mustBe(t, set.Chmod(fs.ModeSetuid|0o600), sema.ErrInvalid)
}

func TestKeyOf_ReturnsDistinctKeys(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	_, err := sysv.KeyOf(path, 'x')
	mustBe(t, err, fs.ErrNotExist)
	must(t, os.WriteFile(path, nil, 0o600))
	x, err := sysv.KeyOf(path, 'x')
	must(t, err)
	y, err := sysv.KeyOf(path, 0xF0)
	must(t, err)
	if uint32(x)>>24 != 'x' || uint32(y)>>24 != 0xF0 || x<<8 != y<<8 {
		t.Errorf("keys %v and %v, want them to differ only in the project", x, y)
	}
}
