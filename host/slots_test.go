//go:build linux && !sema_portable

package host

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
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

// inspectStats returns the exact state, by Inspect.
func inspectStats(sem *Semaphore) (sema.Stats, error) {
	info, err := sem.Inspect(context.Background())
	return info.Stats, err
}

func inspectHolders(sem *Semaphore) ([]Holder, error) {
	info, err := sem.Inspect(context.Background())
	return info.Holders, err
}

// openAsOther opens a semaphore's file as another process would.
func openAsOther(t *testing.T, f *file) int {
	t.Helper()
	if !canInherit {
		t.Skip("locks belong to the process on this system")
	}
	file, err := os.OpenFile(f.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return int(file.Fd())
}

// lockAsOther locks a byte through fd, as another process would.
func lockAsOther(t *testing.T, fd int, at int64) {
	t.Helper()
	if ok, err := tryLock(fd, exclusive, at, 1); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// An outsider is another process, as far as the file shows.
type outsider struct {
	f     *file
	fd    int
	place int
	owner owner
}

// newOutsider starts a process at a place.
func newOutsider(t *testing.T, f *file, place int) *outsider {
	t.Helper()
	o := &outsider{f: f, fd: openAsOther(t, f), place: place}
	lockAsOther(t, o.fd, placeLocks+int64(place))
	if err := reserve(f.fd, placesAt, int64(place+1)*placeSize); err != nil {
		t.Fatal(err)
	}
	incarnation := f.nextIncarnation()
	f.places[place].incarnation.Store(incarnation)
	o.owner = newOwner(place, incarnation)
	return o
}

// hold takes slots without setting their bits.
func (o *outsider) hold(t *testing.T, slots ...int) {
	t.Helper()
	for _, slot := range slots {
		if !o.f.swapAll(run{uint32(slot), 1}, freeSlot, o.owner) {
			t.Fatalf("slot %d is not free", slot)
		}
	}
}

func (o *outsider) release(t *testing.T, slot int) {
	t.Helper()
	if !o.f.swapAll(run{uint32(slot), 1}, o.owner, freeSlot) {
		t.Fatalf("slot %d is not held", slot)
	}
}

// end ends the process: the kernel drops its locks.
func (o *outsider) end() { unlock(o.fd, placeLocks+int64(o.place), 1) }

// blockedIn returns the stacks of goroutines that are in a state and in a function.
func blockedIn(state, function string) (stacks []string) {
	buffer := make([]byte, 1<<20)
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if first, _, _ := strings.Cut(stack, "\n"); strings.Contains(first, state) && strings.Contains(stack, function) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

func TestTurn_TimesOutBehindAStoppedProcess(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	lockAsOther(t, openAsOther(t, sem.file), turnLock)
	start := time.Now()
	p, err := sem.TryAcquire(context.Background(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < turnTimeout {
		t.Errorf("waited %v for the turn, want at least %v", took, turnTimeout)
	}
	p.Release()
}

func TestTurn_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	lockAsOther(t, openAsOther(t, sem.file), turnLock)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := sem.Acquire(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestHeldSlots_EndsWithTheContext(t *testing.T) {
	t.Parallel()
	f := openHere(t, 8).file
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.heldSlots(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTurn_WaitsForAStoppedProcessOnce(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	sem.file.timing.turnBackoff = time.Hour
	lockAsOther(t, openAsOther(t, sem.file), turnLock)
	var missed int64 // when the first claim timed out
	for i := range 20 {
		p, err := sem.TryAcquire(context.Background(), 2)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		switch now := sem.file.turnMissed.Load(); {
		case i == 0:
			missed = now
		case now != missed || now == 0:
			t.Fatalf("try %d timed out at %d, the first one at %d", i, now, missed)
		}
	}
}

// TestTurn_ClockSetBack checks that a claim waits for its turn although the clock shows that an
// earlier one timed out in the future.
func TestTurn_ClockSetBack(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	future := int64(1 << 62)
	sem.file.turnMissed.Store(future)
	lockAsOther(t, openAsOther(t, sem.file), turnLock)
	p, err := sem.TryAcquire(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if missed := sem.file.turnMissed.Load(); missed == future || missed == 0 {
		t.Errorf("the claim did not wait for its turn: it timed out at %d", missed)
	}
}

// TestClaim_IgnoresABitWithoutALock sets bits like a process that is stopped between
// setting a bit and locking the slot.
func TestClaim_IgnoresABitWithoutALock(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 2)
	sem.file.bitmap[0].Store(0b11)
	p, err := sem.TryAcquire(context.Background(), 2)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if bits := sem.file.bitmap[0].Load(); bits != 0 {
		t.Errorf("bits %b, want none", bits)
	}
}

// TestClaim_RespectsAnOwnerWithoutABit takes a slot without setting its bit: a scan may
// take a slot whose bit is about to be cleared.
func TestClaim_RespectsAnOwnerWithoutABit(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 2)
	newOutsider(t, sem.file, 0).hold(t, 0)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sem.TryAcquire(context.Background(), 1); !errors.Is(err, sema.ErrFull) {
		t.Error(err)
	}
	if bits := sem.file.bitmap[0].Load(); bits != 0b11 {
		t.Errorf("bits %b, want the bit of the held slot set again", bits)
	}
	p.Release()
}

// TestResize_CountsSlotsBeyondTheCapacity checks that held slots beyond the capacity
// count after a shrink.
func TestResize_CountsSlotsBeyondTheCapacity(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	other := newOutsider(t, sem.file, 0)
	other.hold(t, 2, 3)
	if err := sem.Resize(context.Background(), 2); err != nil {
		t.Fatal(err)
	}
	if _, err := sem.TryAcquire(context.Background(), 1); !errors.Is(err, sema.ErrFull) {
		t.Fatalf("error %v, want ErrFull: two of two permits are held, beyond the capacity", err)
	}
	other.release(t, 3)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if sem.file.config()&unsettled == 0 {
		t.Error("settled while a slot beyond the capacity is held")
	}
	other.release(t, 2)
	q, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if sem.file.config()&unsettled != 0 {
		t.Error("unsettled although no slot beyond the capacity is held")
	}
	p.Release()
	q.Release()
}

func TestRun_Masks(t *testing.T) {
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

func TestClaim_ScanClearsBitsOfEndedProcesses(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	sem.file.bitmap[0].Store(0b111)
	p, err := sem.TryAcquire(context.Background(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	if bits := sem.file.bitmap[0].Load(); bits != 0b001 {
		t.Errorf("bits %b, want that of the one held slot", bits)
	}
}

func TestLockRuns_TakesAllOrNone(t *testing.T) {
	t.Parallel()
	f := openHere(t, 200).file
	newOutsider(t, f, 0).hold(t, 100)
	locked, err := f.lockRuns([]run{{0, 2}, {60, 10}, {90, 20}})
	if locked || err != nil {
		t.Fatal(locked, err)
	}
	for _, r := range []run{{0, 2}, {60, 10}, {90, 10}, {101, 9}} {
		if !f.swapAll(r, freeSlot, freeSlot) {
			t.Errorf("%+v is not free", r)
		}
	}
	for word := range 4 {
		if mine := f.mine[word].Load(); mine != 0 {
			t.Errorf("word %d: %b is still marked", word, mine)
		}
	}
}

// TestClaim_SlotsAreOwnedAndExclusive races all ways to claim a slot. It checks that the
// slots of a held permit have an owner that lives, as seen by another process, and that no
// other permit has them.
func TestClaim_SlotsAreOwnedAndExclusive(t *testing.T) {
	t.Parallel()
	const capacity = 3
	sem := openHere(t, capacity)
	witness := openAsOther(t, sem.file)
	var owners [capacity]atomic.Int32
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 4000 {
				p, err := sem.TryAcquire(context.Background(), int64(1+(worker+i)%3/2))
				if err != nil {
					continue
				}
				for _, r := range p.Owner().(*lease).runs {
					for slot := r.at; slot < r.at+r.n; slot++ {
						if owners[slot].Add(1) != 1 {
							t.Errorf("slot %d has two owners", slot)
						}
						if i%8 == 0 {
							runtime.Gosched()
						}
						o := owner(sem.file.owners[slot].Load())
						found, err := conflict(witness, placeLocks+int64(o.place()), 1)
						if !found || err != nil || o.incarnation() != sem.file.places[o.place()].incarnation.Load() {
							t.Errorf("slot %d: the owner %#x does not live: %v", slot, o, err)
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

// TestClaim_UsesTheCapacityAtItsEnd changes the capacity while a claim waits for its turn.
func TestClaim_UsesTheCapacityAtItsEnd(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 4)
	sem.file.turns <- struct{}{} // no claim may scan
	ended := make(chan error, 1)
	go func() {
		_, err := sem.TryAcquire(context.Background(), 2)
		ended <- err
	}()
	for len(blockedIn("[select", "(*file).turn")) == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := sem.Resize(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	<-sem.file.turns
	if err := <-ended; !errors.Is(err, sema.ErrTooLarge) {
		t.Errorf("error %v, want ErrTooLarge", err)
	}
	if stats, err := inspectStats(sem); err != nil || stats.InUse != 0 {
		t.Errorf("%+v %v", stats, err)
	}
}

// TestClaim_WakesAWaiterThatMissedItsSlots has a caller begin to wait while a claim has
// slots that it then cannot keep. The waiter finds them held, and sleeps until it is woken.
func TestClaim_WakesAWaiterThatMissedItsSlots(t *testing.T) {
	for _, n := range []int64{1, 2} { // with and without the fast path
		sem := openHere(t, n)
		f := sem.file
		f.timing = timing{poll: time.Hour, watchAfter: time.Hour, skipAfter: time.Hour}
		if p, err := sem.TryAcquire(context.Background(), n); err == nil { // checks the path, which the fast path does not do
			p.Release()
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan error, 1)
		f.onClaim = func() {
			f.onClaim = nil
			if err := sem.Resize(ctx, n); err != nil { // to the same capacity: the config changes
				t.Error(err)
			}
			go func() {
				p, err := sem.Acquire(context.Background(), n)
				p.Release()
				ended <- err
			}()
			for len(blockedIn("[syscall", "futex.Wait(")) == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}
		if _, err := sem.TryAcquire(ctx, n); !errors.Is(err, context.Canceled) {
			t.Fatalf("%d permits: %v, want Canceled", n, err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("the waiter for %d permits, which are free, was not woken", n)
		}
	}
}

// TestResize_RacesWithClaims checks that a claim that races with a resize respects the
// new capacity.
func TestResize_RacesWithClaims(t *testing.T) {
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
		sem.Resize(context.Background(), 4)
		time.Sleep(50 * time.Microsecond)
		sem.Resize(context.Background(), 1)
		for { // until the debt is paid
			if stats, err := inspectStats(sem); err != nil || stats.InUse <= 1 {
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
