//go:build linux && !sema_portable

package host

import (
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
)

func mustTry(t *testing.T, sem *Semaphore, n int64) sema.Permit {
	t.Helper()
	p, err := sem.TryAcquire(context.Background(), n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustBeFull(t *testing.T, sem *Semaphore) {
	t.Helper()
	if _, err := sem.TryAcquire(context.Background(), 1); !errors.Is(err, sema.ErrFull) {
		t.Fatalf("error %v, want ErrFull", err)
	}
}

func mustHold(t *testing.T, sem *Semaphore, want int64) {
	t.Helper()
	if stats, err := inspectStats(sem); err != nil || stats.InUse != want {
		t.Fatalf("%+v %v, want %d in use", stats, err, want)
	}
}

// withoutPlace takes all places, so that the process of f gets none.
func withoutPlace(t *testing.T, f *file) {
	t.Helper()
	if ok, err := tryLock(openAsOther(t, f), exclusive, placeLocks, maxPlaces); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

func TestOwner_Word(t *testing.T) {
	t.Parallel()
	for _, place := range []int{0, 7, maxPlaces - 1, lockedPlace} {
		for _, n := range []uint64{1, 12345, incarnationMask} {
			o := newOwner(place, n)
			if !o.valid() || o == freeSlot || o.place() != place || o.incarnation() != n || o.locked() != (place == lockedPlace) {
				t.Errorf("place %d, incarnation %d: %#x has place %d, incarnation %d", place, n, o, o.place(), o.incarnation())
			}
		}
	}
	for _, o := range []owner{0, ^owner(0), ownerTag | lockedPlace + 1, newOwner(3, 3) + 1<<48} {
		if o.valid() {
			t.Errorf("%#x is valid", o)
		}
	}
}

// TestOwner_EndsWithItsProcess checks that slots are free when their process has ended,
// also if another process has its place, and no earlier.
func TestOwner_EndsWithItsProcess(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 2)
	first := newOutsider(t, sem.file, 0)
	first.hold(t, 0, 1)
	mustBeFull(t, sem)
	first.end()
	second := newOutsider(t, sem.file, 0)
	p := mustTry(t, sem, 1)
	second.hold(t, 1)
	mustBeFull(t, sem)
	p.Release()
	second.end()
	mustTry(t, sem, 2).Release()
	mustHold(t, sem, 0)
}

// TestOwner_UnknownWordIsNeverGranted overwrites the words of held slots, as another
// program could. No permit of the slot is granted, by any way to claim it.
func TestOwner_UnknownWordIsNeverGranted(t *testing.T) {
	t.Parallel()
	for _, word := range []uint64{0, 1, ^uint64(0), uint64(newOwner(0, 1)) ^ 1<<63} {
		for _, n := range []int64{1, 2} {
			for _, hinted := range []bool{false, true} {
				sem := openHere(t, 2)
				p := mustTry(t, sem, 2)
				for slot := range 2 {
					sem.file.owners[slot].Store(word)
				}
				if hinted {
					sem.file.mine[0].Store(0) // as if another process held them
					sem.file.bitmap[0].Store(0)
				}
				_, err := sem.TryAcquire(context.Background(), n)
				if want := sema.ErrFull; hinted {
					if !errors.Is(err, ErrDamaged) {
						t.Errorf("word %#x, %d permits: %v, want ErrDamaged", word, n, err)
					}
				} else if !errors.Is(err, want) {
					t.Errorf("word %#x, %d permits: %v, want %v", word, n, err, want)
				}
				p.Release()
				if _, err := sem.TryAcquire(context.Background(), n); !errors.Is(err, ErrDamaged) {
					t.Errorf("word %#x, %d permits after the release: %v, want ErrDamaged", word, n, err)
				}
			}
		}
	}
}

// TestOwner_OfAProcessWithoutAPlace checks that the permits of such a process are locks.
func TestOwner_OfAProcessWithoutAPlace(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	f := sem.file
	withoutPlace(t, f)
	witness := openAsOther(t, f)
	locked := func(slot int64) bool {
		found, err := conflict(witness, slotLocks+slot, 1)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	p, q := mustTry(t, sem, 1), mustTry(t, sem, 2)
	for slot := range int64(3) {
		if !locked(slot) || !owner(f.owners[slot].Load()).locked() {
			t.Errorf("slot %d: owner %#x, locked %v", slot, f.owners[slot].Load(), locked(slot))
		}
	}
	mustHold(t, sem, 3)
	mustBeFull(t, sem)
	cmd := exec.Command("true")
	if err := Inherit(q, cmd); err != nil {
		t.Fatal(err)
	}
	mustHold(t, sem, 3)
	p.Release()
	mustHold(t, sem, 2)
	q.Release()
	mustHold(t, sem, 0)
	for slot := range int64(3) {
		if locked(slot) {
			t.Errorf("slot %d is still locked", slot)
		}
	}
}

// TestOwner_OfALockThatWasDropped checks that a slot is free when the lock that its word
// names is dropped, and that a new claim of the same slot is not mistaken for the old one.
func TestOwner_OfALockThatWasDropped(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	f := sem.file
	withoutPlace(t, f)
	fd := openAsOther(t, f)
	lockAsOther(t, fd, slotLocks)
	old := newOwner(lockedPlace, f.nextIncarnation())
	f.owners[0].Store(uint64(old))
	mustBeFull(t, sem)
	unlock(fd, slotLocks, 1)
	p := mustTry(t, sem, 1)
	if now := owner(f.owners[0].Load()); now == old || !now.locked() {
		t.Errorf("owner %#x after %#x", now, old)
	}
	p.Release()
	mustHold(t, sem, 0)
}

// TestOwner_PartsOfAnInheritedPermit releases one part of an inherited permit while scans
// look at the others, whose words are the same.
func TestOwner_PartsOfAnInheritedPermit(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 3)
	end := time.Now().Add(200 * time.Millisecond)
	for i := 0; i < 20 || time.Now().Before(end); i++ {
		p := mustTry(t, sem, 3)
		if err := Inherit(p, exec.Command("true")); err != nil {
			t.Fatal(err)
		}
		sem.file.mine[0].Store(0) // let the scans ask the kernel, as those of another process do
		part, rest, err := p.Split(1)
		if err != nil {
			t.Fatal(err)
		}
		var scans sync.WaitGroup
		for range 2 {
			scans.Go(func() {
				for range 20 {
					if _, err := sem.file.heldSlots(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		part.Release()
		scans.Wait()
		mustHold(t, sem, 2)
		rest.Release()
		mustHold(t, sem, 0)
	}
}

// TestTakePlace_OnceForAllGoroutines checks that all claims of a process have one owner.
func TestTakePlace_OnceForAllGoroutines(t *testing.T) {
	t.Parallel()
	for range 20 {
		sem := openHere(t, 8)
		start := make(chan struct{})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				<-start
				if _, err := sem.Acquire(context.Background(), 1); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		mustHold(t, sem, 8)
		for slot := range 8 {
			if o := sem.file.owners[slot].Load(); o != sem.file.identity.Load() {
				t.Fatalf("slot %d: owner %#x, want %#x", slot, o, sem.file.identity.Load())
			}
		}
	}
}

// TestResize_AddsSlots raises the capacity, concurrently and repeatedly.
func TestResize_AddsSlots(t *testing.T) {
	t.Parallel()
	sem := openHere(t, 1)
	held := mustTry(t, sem, 1)
	var all sync.WaitGroup
	for _, capacity := range []int64{600, 1000, 2000, MaxCapacity} {
		all.Go(func() {
			if err := sem.Resize(context.Background(), capacity); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := sem.Resize(context.Background(), MaxCapacity); err != nil {
		t.Fatal(err)
	}
	rest := mustTry(t, sem, MaxCapacity-1)
	mustHold(t, sem, MaxCapacity)
	mustBeFull(t, sem)
	held.Release()
	rest.Release()
	mustHold(t, sem, 0)
}
