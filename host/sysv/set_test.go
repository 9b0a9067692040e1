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

func TestASetIsFoundByKeyAndID(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	_, err := sysv.Open(key)
	mustBe(t, err, fs.ErrNotExist, syscall.ENOENT)
	made, err := sysv.Create(key, 0o600, 1, 2, 3)
	must(t, err)
	_, err = sysv.Create(key, 0o600, 1)
	mustBe(t, err, fs.ErrExist, syscall.EEXIST)

	byKey, err := sysv.Open(key)
	must(t, err)
	byID, err := sysv.OpenID(made.ID())
	must(t, err)
	either, err := sysv.OpenOrCreate(key, 0o600, 9, 9, 9)
	must(t, err)
	for _, set := range []*sysv.Set{made, byKey, byID, either} {
		if set.ID() != made.ID() || set.Key() != key || set.Len() != 3 || set.Name() != "sysv "+key.String() {
			t.Errorf("opened %+v, want it like %+v", set, made)
		}
		expectValues(t, set, 1, 2, 3)
	}
	_, err = sysv.OpenOrCreate(key, 0o600, 1, 2)
	mustBe(t, err, sema.ErrInvalid)
	_, err = sysv.OpenOrCreate(key, 0o600, 1, 2, 3, 4)
	mustBe(t, err, sema.ErrInvalid)
}

func TestPrivateSetsAreApart(t *testing.T) {
	t.Parallel()
	a, b := newSet(t, 1), newSet(t, 2)
	if a.ID() == b.ID() || a.Name() == b.Name() {
		t.Errorf("two private sets are one: %v and %v", a, b)
	}
	_, err := sysv.Open(sysv.Private)
	mustBe(t, err, sema.ErrInvalid)
	c, err := sysv.OpenOrCreate(sysv.Private, 0o600, 3)
	must(t, err)
	used.Store(c.ID(), true)
	defer remove(t, c)
	expectValues(t, c, 3)
}

func TestSetsAreInitialisedWhateverTheirValues(t *testing.T) {
	t.Parallel()
	for _, values := range [][]int{{0}, {0, 0, 0}, {sysv.MaxValue}, {0, 5, 0}, slices.Repeat([]int{0, 7}, 300), slices.Repeat([]int{sysv.MaxValue}, 700)} {
		key := newKey(t)
		made, err := sysv.Create(key, 0o600, values...)
		must(t, err)
		set, err := sysv.Open(key)
		must(t, err)
		expectValues(t, set, values...)
		// Their creator must not have left anything to be undone.
		info, err := made.Stat()
		must(t, err)
		if info.LastOp.IsZero() || time.Since(info.LastOp) > time.Minute {
			t.Errorf("time of the last operation is %v", info.LastOp)
		}
	}
}

func TestNonsenseIsNotCreated(t *testing.T) {
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

// many is a set whose values take long to set one after the other.
var many = slices.Repeat([]int{1, 2, 3, 4}, 100)

// TestNobodyFindsASetWithoutItsValues has processes open a set all the time
// that is created and removed all the time.
func TestNobodyFindsASetWithoutItsValues(t *testing.T) {
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
		defer all.Store(true) // also when one says nothing, which fails the test
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
		p.Say("stop")
		var opened int
		if fmt.Sscanf(p.Hear(), "opened %d", &opened); opened == 0 {
			t.Error("an opener never opened anything: this proved nothing")
		}
	}
}

func openOften(c *proctest.Child) {
	key := sysv.Key(number(c, 0))
	stop, opened := told(c), 0
	c.Say("opening")
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
			c.Say("opened one")
		}
	}
	c.Say("opened %d", opened)
}

func TestOfManyCreatorsOneCreates(t *testing.T) {
	t.Parallel()
	const creators, rounds = 6, 20
	var processes []*proctest.Process
	for range creators {
		processes = append(processes, proctest.Start(t, "creator"))
	}
	for range rounds {
		key := newKey(t)
		for _, p := range processes {
			p.Say("%d", key)
		}
		id := processes[0].Hear()
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
		fmt.Sscan(c.Hear(), &key)
		set, err := sysv.OpenOrCreate(key, 0o600, 100, 5, 7)
		c.Must(err)
		c.Must(set.TryOp(sysv.Op{Num: 0, Delta: -1}, sysv.Op{Num: 1, Delta: -5}, sysv.Op{Num: 2, Delta: -7},
			sysv.Op{Num: 1, Delta: +5}, sysv.Op{Num: 2, Delta: +7}))
		c.Say("%d", set.ID())
	}
}

// createBare does the first half of creating a set.
func createBare(t *testing.T, key sysv.Key) {
	t.Helper()
	const create, exclusive = 0o1000, 0o2000
	if _, _, errno := syscall.Syscall(syscall.SYS_SEMGET, uintptr(key), 2, create|exclusive|0o600); errno != 0 {
		t.Fatal(errno)
	}
}

func TestASetWhoseCreatorDiedIsToldOf(t *testing.T) {
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

func TestOpenWaitsForASlowCreator(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	createBare(t, key)
	var opened *sysv.Set
	ended := later(func() (err error) {
		opened, err = sysv.Open(key)
		return err
	})
	select {
	case err := <-ended:
		t.Fatalf("opened a set without values (%v)", err)
	case <-time.After(100 * time.Millisecond):
	}
	slow, err := sysv.OpenAny(key)
	must(t, err)
	must(t, slow.TryOp(sysv.Op{Num: 0, Delta: 3}, sysv.Op{Num: 1, Delta: 4}))
	must(t, soon(t, ended))
	expectValues(t, opened, 3, 4)
}

func TestARemovedSetIsClosed(t *testing.T) {
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

func TestValuesAreSetAndRead(t *testing.T) {
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

func TestTheKernelTellsAboutSets(t *testing.T) {
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
		t.Errorf("stat says %+v, want %+v", info, want)
	}
	for _, moment := range []time.Time{info.LastOp, info.Changed} {
		if moment.Before(begin) || moment.After(time.Now()) {
			t.Errorf("%v is not between %v and now", moment, begin)
		}
	}
	list, err := sysv.List()
	must(t, err)
	if !slices.Contains(list, info) {
		t.Errorf("the list %+v has no %+v", list, info)
	}
	mustBe(t, set.Chmod(fs.ModeSetuid|0o600), sema.ErrInvalid)
}

func TestKeysOfFiles(t *testing.T) {
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
		t.Errorf("keys are %v and %v: want them to differ in the project only", x, y)
	}
}
