//go:build linux && !sema_portable

package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
)

func openHere(t *testing.T, capacity int64) *Semaphore {
	t.Helper()
	sem, err := Open("internal", capacity, Dir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sem.Close() })
	return sem
}

// beside opens a semaphore's file as another process would.
func beside(t *testing.T, f *file) int {
	t.Helper()
	if !canInherit {
		t.Skip("locks are of the process here")
	}
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return int(file.Fd())
}

// lockBeside has somebody else hold a lock.
func lockBeside(t *testing.T, fd int, at int64) {
	t.Helper()
	if ok, err := tryLock(fd, exclusive, at, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestAProcessStoppedInItsTurnHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	lockBeside(t, beside(t, sem.file), turnLock)
	start := time.Now()
	p, err := sem.TryAcquire(context.Background(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < turnPatience {
		t.Errorf("it did not wait for its turn, but %v", took)
	}
	p.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := sem.Acquire(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a turn outlasts the context: %v", err)
	}
}

// A process that is stopped between marking a slot and locking it.
func TestAMarkWithoutALockIsNotInTheWay(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 2)
	sem.file.bitmap[0].Store(0b11)
	p, err := sem.TryAcquire(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if bits := sem.file.bitmap[0].Load(); bits != 0 {
		t.Errorf("marks %b are left", bits)
	}
}

// The other way round: its slot was taken by a scan before it could clear it.
func TestALockWithoutAMarkIsRespected(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 2)
	fd := beside(t, sem.file)
	lockBeside(t, fd, slotLocks)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sem.TryAcquire(context.Background(), 1); !errors.Is(err, sema.ErrFull) {
		t.Error(err)
	}
	if bits := sem.file.bitmap[0].Load(); bits != 0b11 {
		t.Errorf("marks %b, want the locked slot marked again", bits)
	}
	p.Release()
}

// After a shrink slots beyond the capacity count.
func TestShrunkSemaphoreCountsWhatIsHeldBeyond(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	fd := beside(t, sem.file)
	for _, slot := range []int64{2, 3} {
		lockBeside(t, fd, slotLocks+slot)
	}
	if err := sem.Resize(2); err != nil {
		t.Fatal(err)
	}
	if _, err := sem.TryAcquire(context.Background(), 1); !errors.Is(err, sema.ErrFull) {
		t.Fatalf("%v: two of two permits are held, in slots beyond", err)
	}
	unlock(fd, slotLocks+3, 1)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if sem.file.config()&unsettled == 0 {
		t.Error("settled while a slot beyond the capacity is held")
	}
	unlock(fd, slotLocks+2, 1)
	q, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if sem.file.config()&unsettled != 0 {
		t.Error("still counting though nothing beyond the capacity is held")
	}
	p.Release()
	q.Release()
}

// With every place taken, waiting goes on by looking.
func TestWaitingWithoutAPlace(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	fd := beside(t, sem.file)
	if ok, err := tryLock(fd, exclusive, placeLocks, maxPlaces); !ok || err != nil {
		t.Fatal(ok, err)
	}
	p, err := sem.Acquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	for range 3 {
		go func() {
			p, err := sem.Acquire(context.Background(), 1)
			p.Release()
			got <- err
		}()
	}
	for sem.file.line.length.Load() != 3 {
		time.Sleep(time.Millisecond)
	}
	p.Release()
	for range 3 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func TestNetworkFilesystemsAreRefused(t *testing.T) {
	dir := t.TempDir()
	var stat syscall.Statfs_t
	if err := syscall.Statfs(dir, &stat); err != nil {
		t.Fatal(err)
	}
	kind := uint32(stat.Type)
	before, listed := networks[kind]
	if listed {
		t.Skip("the tests run on " + before)
	}
	networks[kind] = "test"
	defer delete(networks, kind)
	if _, err := Open("a", 1, Dir(dir)); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

func TestFullDiskIsAnErrorAndNotTheEnd(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Skip("needs the right to mount:", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	sem, err := Open("fits", 200, Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer sem.Close()
	filler := filepath.Join(dir, "filler")
	os.WriteFile(filler, make([]byte, 64<<10), 0o600) // until there is no room
	p, err := sem.Acquire(context.Background(), 200)
	if err != nil {
		t.Fatal(err)
	}
	holders, err := sem.Holders()
	if err != nil {
		t.Fatal(err)
	}
	var held int64
	for _, h := range holders {
		held += h.Weight
	}
	if held != 200 {
		t.Errorf("%d held by %d, want 200", held, len(holders))
	}
	got := make(chan error)
	go func() {
		p, err := sem.Acquire(context.Background(), 1)
		p.Release()
		got <- err
	}()
	for sem.file.line.length.Load() != 1 {
		time.Sleep(time.Millisecond)
	}
	p.Release()
	if err := <-got; err != nil {
		t.Error(err)
	}
	if _, err := Open("does-not-fit", 1, Dir(dir)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v, want no space", err)
	}
}

func TestPlacesOfTheDeadAreCleared(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	f := sem.file
	if err := reserve(f.fd, placesAt, 4*placeSize); err != nil {
		t.Fatal(err)
	}
	f.places[0].ticket.Store(1)
	f.places[1].ticket.Store(2)
	f.places[1].passed.Store(1)
	f.places[2].ticket.Store(3)
	f.head.high.Store(3)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if high := f.head.high.Load(); high != 0 {
		t.Errorf("the line still reaches to %d", high)
	}
}

func TestOnlyWhoShowsNoSignOfLifeIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &file{places: new([maxPlaces]place)}
		var w watch
		pass := func(ticket uint64) bool { return w.passOver(f, 0, ticket) }
		for range 10 {
			if pass(1) {
				t.Fatal("a place that beats was passed over")
			}
			time.Sleep(poll)
			f.places[0].beat.Add(1)
		}
		for ticket := uint64(2); ticket < 12; ticket++ {
			if pass(ticket) {
				t.Fatal("a place that moves on was passed over")
			}
			time.Sleep(poll)
		}
		if pass(20) {
			t.Fatal("a place was passed over at first sight")
		}
		time.Sleep(passAfter - 1)
		if pass(20) || f.places[0].passed.Load() != 0 {
			t.Fatal("a place was passed over early")
		}
		time.Sleep(time.Nanosecond)
		if !pass(20) || f.places[0].passed.Load() != 1 {
			t.Error("a dead place was not passed over")
		}
	})
}

func TestALockIsNeverFreeWhileItMoves(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	p, err := sem.Acquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	slot, heir, thief := run{0, 1}, beside(t, sem.file), beside(t, sem.file)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 5000 {
			if err := errors.Join(moveLock(sem.file.fd, heir, slot), moveLock(heir, sem.file.fd, slot)); err != nil {
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
		if stolen, err := tryLock(thief, exclusive, slot.offset(), 1); stolen || err != nil {
			t.Fatal("the slot could be locked:", err)
		}
	}
}

// The driver may be asleep for a waiter who left when the next one comes, whom
// no release will wake because the slot is free already.
func TestDriverIsRousedForALateWaiter(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	var took []time.Duration
	for range 11 {
		p, err := sem.Acquire(context.Background(), 1)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		sem.Acquire(ctx, 1)
		cancel()
		p.Release()
		start := time.Now()
		runs, err := sem.file.wait(context.Background(), sem, 1)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(start))
		sem.file.free(runs)
	}
	slices.Sort(took)
	if median := took[len(took)/2]; median > poll/4 {
		t.Errorf("it took %v", median)
	}
}

func TestAFileReplacedWhileItIsOpenedIsNotUsed(t *testing.T) {
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
		if err := f.setUp(1, access{onlyUser}); !errors.Is(err, errReplaced) {
			t.Error(err)
		}
		f.close()
	}
}

func TestRecordsAreErased(t *testing.T) {
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

func TestRunMasks(t *testing.T) {
	t.Parallel()
	for _, r := range []run{{0, 1}, {63, 1}, {63, 2}, {0, 64}, {64, 64}, {1, 200}, {130, 0}} {
		var words [4]uint64
		r.masks(func(word int, mask uint64) { words[word] |= mask })
		for at := range uint32(256) {
			set := words[at/64]&(1<<(at%64)) != 0
			if want := at >= r.at && at < r.at+r.n; set != want {
				t.Errorf("%+v: slot %d is %v", r, at, set)
			}
		}
	}
}

func TestAScanClearsTheMarksOfTheDead(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	sem.file.bitmap[0].Store(0b111)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if bits := sem.file.bitmap[0].Load(); bits != 0b001 {
		t.Errorf("marks %b, want those of the one slot that is held", bits)
	}
}

func TestRunsAreLockedTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	f := openHere(t, 200).file
	other := beside(t, f)
	lockBeside(t, other, slotLocks+100)
	locked, err := f.lockRuns([]run{{0, 2}, {60, 10}, {90, 20}})
	if locked || err != nil {
		t.Fatal(locked, err)
	}
	for _, r := range []run{{0, 2}, {60, 10}, {90, 10}, {101, 9}} {
		if ok, err := tryLock(other, exclusive, r.offset(), int64(r.n)); !ok || err != nil {
			t.Errorf("%+v is still locked: %v", r, err)
		}
	}
	for word := range 4 {
		if mine := f.mine[word].Load(); mine != 0 {
			t.Errorf("word %d: %b is still marked", word, mine)
		}
	}
}

// Every way to a slot, in a hurry: whoever has a permit has its slots locked,
// for all others to see, and nobody else has them.
func TestHeldSlotsAreLockedAndOnesOwn(t *testing.T) {
	t.Parallel()
	const capacity = 3
	sem := openHere(t, capacity)
	witness := beside(t, sem.file)
	var owners [capacity]atomic.Int32
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 4000 {
				p, err := sem.TryAcquire(context.Background(), int64(1+(worker+i)%3/2))
				if err != nil {
					continue
				}
				for _, r := range p.Lease().(*lease).runs {
					for slot := r.at; slot < r.at+r.n; slot++ {
						if owners[slot].Add(1) != 1 {
							t.Errorf("slot %d has two owners", slot)
						}
						if i%8 == 0 {
							runtime.Gosched()
						}
						_, _, found, err := conflict(witness, slotLocks+int64(slot), 1)
						if !found || err != nil {
							t.Errorf("slot %d is not locked: %v", slot, err)
						}
						owners[slot].Add(-1)
					}
				}
				p.Release()
				if t.Failed() {
					return
				}
			}
		})
	}
	wg.Wait()
}

// A claim that had to wait for its turn goes by the capacity of afterwards.
func TestClaimGoesByTheCapacityOfItsEnd(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	sem.file.turns <- struct{}{} // nobody may scan
	ended := make(chan error, 1)
	go func() {
		_, err := sem.TryAcquire(context.Background(), 2)
		ended <- err
	}()
	for len(blockedIn("(*file).turn")) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := sem.Resize(1); err != nil {
		t.Fatal(err)
	}
	<-sem.file.turns
	if err := <-ended; !errors.Is(err, sema.ErrTooLarge) {
		t.Errorf("%v, want too large", err)
	}
	if stats, err := sem.Stats(); err != nil || stats.InUse != 0 {
		t.Errorf("%+v %v", stats, err)
	}
}

// blockedIn is the stacks of goroutines that wait in a function.
func blockedIn(function string) (stacks []string) {
	buffer := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if first, _, _ := strings.Cut(stack, "\n"); strings.Contains(first, "[select") && strings.Contains(stack, function) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// Whoever locks a slot while the capacity changes goes by the new one.
func TestResizeRacingClaims(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	var held, phase atomic.Int64 // the capacity is 1 in odd phases
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p, err := sem.TryAcquire(context.Background(), 1)
				if err != nil {
					runtime.Gosched()
					continue
				}
				before, now := phase.Load(), held.Add(1)
				if after := phase.Load(); before == after && before%2 == 1 && now > 1 {
					t.Errorf("%d held of 1", now)
				}
				runtime.Gosched()
				held.Add(-1)
				p.Release()
			}
		})
	}
	for range 300 {
		sem.Resize(4)
		time.Sleep(50 * time.Microsecond)
		sem.Resize(1)
		for { // until the debt is paid
			if stats, err := sem.Stats(); err != nil || stats.InUse <= 1 {
				break
			}
		}
		phase.Add(1)
		time.Sleep(50 * time.Microsecond)
		phase.Add(1)
	}
	close(stop)
	wg.Wait()
}
