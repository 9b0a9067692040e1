//go:build linux && !sema_portable

package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

func TestOpen_RejectsNetworkFilesystems(t *testing.T) {
	dir := t.TempDir()
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	if kind := uint32(stat.Type); networks[kind] == "" {
		networks[kind] = "test"
		defer delete(networks, kind)
	}
	if _, err := Open("a", 1, Dir(dir)); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestSemaphore_SurvivesAFullDisk(t *testing.T) {
	dir := t.TempDir()
	mountTmpfs(t, dir, 0, "size=32k")
	sem, err := Open("fits", 200, Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer sem.Close()
	filler := filepath.Join(dir, "filler")
	os.WriteFile(filler, make([]byte, 64<<10), 0o600) // until the disk is full
	p, err := sem.Acquire(context.Background(), 200)
	if err != nil {
		t.Fatal(err)
	}
	holders, err := inspectHolders(sem)
	if err != nil {
		t.Fatal(err)
	}
	var held int64
	for _, h := range holders {
		held += h.Weight
	}
	if held != 200 {
		t.Errorf("%d held by %d holders, want 200 held", held, len(holders))
	}
	got := make(chan error)
	go func() {
		p, err := sem.Acquire(context.Background(), 1)
		p.Release()
		got <- err
	}()
	for sem.file.queue.length.Load() != 1 {
		time.Sleep(time.Millisecond)
	}
	p.Release()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if _, err := Open("does-not-fit", 1, Dir(dir)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("error %v, want ENOSPC", err)
	}
}

func TestMoveLock_NeverFreesTheSlot(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	lockAsOther(t, sem.file.fd, slotLocks)
	slot, target, contender := run{0, 1}, openAsOther(t, sem.file), openAsOther(t, sem.file)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			if err := errors.Join(moveLock(sem.file.fd, target, slot), moveLock(target, sem.file.fd, slot)); err != nil {
				t.Error(err)
			}
		}
	}()
	for {
		select {
		case <-done:
			return
		default:
		}
		if locked, err := tryLock(contender, exclusive, slot.offset(), 1); locked || err != nil {
			t.Fatal("another process could lock the slot:", err)
		}
	}
}

func TestFile_SetUpRejectsAReplacedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.sema")
	for _, meanwhile := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		opened, err := openPath(path, true, access{onlyUser})
		if err != nil {
			t.Fatal(err)
		}
		if err := meanwhile(); err != nil {
			t.Fatal(err)
		}
		f := &file{name: "a", path: path, file: opened, fd: int(opened.Fd())}
		if err := f.setUp(stored{capacity: 1}, access{onlyUser}); !errors.Is(err, errReplaced) {
			t.Error(err)
		}
		f.close()
	}
}

func TestHolders_RejectsInvalidRecords(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 8)
	f := sem.file
	newOutsider(t, f, 0).hold(t, 0, 1, 2)
	f.reserveRecord(0)
	now := time.Now().UnixNano()
	written := self()
	written.since = now
	for _, wrong := range []func(*record){
		func(r *record) { r.slots = 4 },                 // more slots than are held
		func(r *record) { r.slots = ^uint32(0) },        // more slots than exist
		func(r *record) { r.slots, r.since = 1, 0 },     // erased
		func(r *record) { r.slots, r.started = 1, 1 },   // of a process that has ended
		func(r *record) { r.slots, r.pid = 1, 1<<22+1 }, // of a process that cannot exist
	} {
		f.records[0] = written
		wrong(&f.records[0])
		f.records[1] = written
		f.records[1].slots = 2
		holders, err := inspectHolders(sem)
		if err != nil || len(holders) != 2 || holders[0].PID != 0 || holders[0].Weight != 1 || holders[1].PID != os.Getpid() || holders[1].Weight != 2 {
			t.Errorf("%+v: %+v %v, want an unknown holder and this process", f.records[0], holders, err)
		}
	}
	f.records[0] = written
	f.records[0].slots, f.records[0].started, f.records[0].inherited = 1, 1, 1
	if holders, err := inspectHolders(sem); err != nil || len(holders) != 2 || holders[0].PID != os.Getpid() {
		t.Errorf("%+v %v, want the inherited permit of an ended process", holders, err)
	}
}

func TestInspect_CountsALockToTheEndOfTheFile(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	const toTheEnd = 0
	if !sem.file.swapAll(run{1, 3}, freeSlot, newOwner(lockedPlace, 1)) {
		t.Fatal("not free")
	}
	if ok, err := tryLock(openAsOther(t, sem.file), exclusive, slotLocks+1, toTheEnd); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if stats, err := inspectStats(sem); err != nil || stats.InUse != 3 {
		t.Errorf("%+v %v, want 3 in use", stats, err)
	}
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if _, err := sem.TryAcquire(context.Background(), 1); !errors.Is(err, sema.ErrFull) {
		t.Error(err)
	}
}

func TestFile_ClampsAnInvalidHeader(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	sem.file.head.reach.Store(1 << 30)
	sem.file.head.high.Store(0xffff)
	if err := reserve(sem.file.fd, placesAt, maxPlaces*placeSize); err != nil {
		t.Fatal(err)
	}
	sem.file.head.config.Store(1<<31 - 1)
	if _, err := inspectStats(sem); err != nil {
		t.Error(err)
	}
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Error(err)
	}
	p.Release()
}

func TestFile_FailedRemoveDropsTheExclusiveLock(t *testing.T) {
	t.Parallel()
	f := openHere(t, 1).file
	fd := openAsOther(t, f)
	if err := os.Rename(f.path, f.path+"x"); err != nil {
		t.Fatal(err)
	}
	if err := f.remove("remove"); err == nil {
		t.Error("remove of a missing file succeeded")
	}
	if ok, err := tryLock(fd, shared, presenceLock, 1); !ok || err != nil {
		t.Error("the presence lock is still exclusive:", err)
	}
}

func TestAcquire_WrapsErrorsOfTheDriver(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	if _, err := sem.Acquire(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(context.Background(), 1)
		ended <- err
	}()
	for sem.file.queue.length.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	dir := filepath.Dir(sem.file.path)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir + "-moved")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // not a directory, so the error is not ErrDeleted
		t.Fatal(err)
	}
	err := <-ended
	var named *sema.Error
	if !errors.As(err, &named) || named.Name != "internal" || errors.Is(err, ErrDeleted) {
		t.Error(err)
	}
}

func TestOpen_OnlyOpenerResetsTheFile(t *testing.T) {
	t.Parallel()
	dir := Dir(t.TempDir())
	sem, err := Open("a", 1, dir)
	if err != nil {
		t.Fatal(err)
	}
	sem.file.reserveRecord(0)
	sem.file.records[0] = self()
	sem.file.bitmap[0].Store(1)
	sem.Close()
	if sem, err = Open("a", 1, dir); err != nil {
		t.Fatal(err)
	}
	defer sem.Close()
	if r := sem.file.readRecord(0); r != (record{}) || sem.file.bitmap[0].Load() != 0 {
		t.Errorf("record %+v, bitmap %b, want none", r, sem.file.bitmap[0].Load())
	}
}

func TestRelease_ErasesRecords(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	p, err := sem.Acquire(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	if r := sem.file.readRecord(0); r.since == 0 || r.slots != 2 {
		t.Errorf("%+v while held", r)
	}
	p.Release()
	if r := sem.file.readRecord(0); r.since != 0 {
		t.Errorf("%+v after the release", r)
	}
}
