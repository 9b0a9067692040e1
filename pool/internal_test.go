package pool

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"unsafe"
)

func newIntPool(size int64) *Pool[int] {
	return New(Config[int]{Size: size, Open: func(context.Context) (int, error) { return 1, nil }})
}

// addSlots puts n slots on the stack.
func addSlots(p *Pool[int], n int) {
	p.lock()
	for range n {
		s := p.newSlotLocked()
		s.box.Store(new(int))
		p.pushLocked(s)
	}
	p.unlock()
}

// TestStack_NoSlotIsPoppedTwice races pushes and pops with critical sections, in which only
// the holder of the lock changes the stack.
func TestStack_NoSlotIsPoppedTwice(t *testing.T) {
	t.Parallel()
	const slots, workers, sections = 3, 2, 300
	p := newIntPool(slots)
	addSlots(p, slots)
	owned := make([]atomic.Bool, slots+1)
	var stop atomic.Bool
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for !stop.Load() {
				s := p.pop()
				if s == nil {
					runtime.Gosched()
					continue
				}
				if owned[s.index].Swap(true) {
					t.Error("a slot has two owners")
				}
				owned[s.index].Store(false)
				if !p.push(s) {
					p.lock()
					p.pushLocked(s)
					p.unlock()
				}
			}
		})
	}
	for i := range sections {
		p.lock()
		if i%2 == 0 { // turn the stack upside down
			for _, s := range p.removeLocked(func(int, *slot[int]) bool { return true }) {
				if owned[s.index].Load() {
					t.Error("a slot on the stack has an owner")
				}
				p.pushLocked(s)
			}
		}
		before := p.word.Load()
		runtime.Gosched()
		if p.word.Load() != before {
			t.Error("the stack changed under the lock")
		}
		p.unlock()
		runtime.Gosched()
	}
	stop.Store(true)
	working.Wait()
	if idle := p.Stats().Idle; idle != slots {
		t.Errorf("%d slots are left, want %d", idle, slots)
	}
}

// TestStack_EachSectionChangesTheWord: a push that read the word before a critical section
// fails after it, also if the section left the stack as it was. So what push has decided by
// still holds.
func TestStack_EachSectionChangesTheWord(t *testing.T) {
	t.Parallel()
	p := newIntPool(2)
	for range 2 {
		before := p.word.Load()
		p.Reset()
		if p.word.Load() == before {
			t.Error("the word before and after a Reset is the same")
		}
		addSlots(p, 1)
	}
	before := p.word.Load()
	if s := p.pop(); !p.push(s) || p.word.Load() == before { // the ABA problem
		t.Error("the word before and after a pop and a push is the same")
	}
}

// TestItem_ReleaseWaitsForAReader: a lending does not end while Permit reads the slot, and
// is not lost either.
func TestItem_ReleaseWaitsForAReader(t *testing.T) {
	t.Parallel()
	p := newIntPool(1)
	for name, end := range map[string]func(Item[int]){
		"Release": Item[int].Release, "Discard": Item[int].Discard,
		"Keep": func(i Item[int]) { _, permit := i.Keep(); permit.Release() },
		"Permit": func(i Item[int]) {
			if permit := i.Permit(); !permit.Held() {
				t.Error("the permit of a held item is not held")
			}
			i.Release()
		},
	} {
		item, err := p.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !item.slot.pin(item.gen) || !item.Held() || item.Value() != 1 {
			t.Fatal("a pinned item is not held")
		}
		done := make(chan struct{})
		go func() { defer close(done); end(item) }()
		for range 100 {
			runtime.Gosched()
		}
		item.slot.gen.Store(item.gen)
		<-done
		if st := p.Stats(); item.Held() || st.InUse != 0 {
			t.Errorf("%s was lost: %+v", name, st)
		}
	}
}

func TestItem_Sizes(t *testing.T) {
	t.Parallel()
	if n := unsafe.Sizeof(Item[[4]string]{}) / unsafe.Sizeof(uintptr(0)); n > 4 {
		t.Errorf("an Item has %d words: more than 4 are not passed in registers", n)
	}
}

// TestStack_ItemPutBackIntoAClosedPoolIsClosed: a caller pops an item that needs a Check, and
// Close does not find it on the stack.
func TestStack_ItemPutBackIntoAClosedPoolIsClosed(t *testing.T) {
	t.Parallel()
	closed := 0
	p := New(Config[int]{
		Size:       1,
		Open:       func(context.Context) (int, error) { return 1, nil },
		Close:      func(int) { closed++ },
		Check:      func(context.Context, int) error { return nil },
		CheckAfter: time.Nanosecond,
	})
	item, err := p.Get(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	item.Release()
	s := p.pop()
	if s == nil || p.fresh(s) {
		t.Fatal("the idle item needs no check")
	}
	p.Close()
	p.putBack(s)
	if st := p.Stats(); closed != 1 || st.Open != 0 {
		t.Errorf("closed %d times, %d open; want 1, 0", closed, st.Open)
	}
}

// TestPool_FindRejectsAfterDrain: the caller got its permit just before the Drain.
func TestPool_FindRejectsAfterDrain(t *testing.T) {
	t.Parallel()
	p := newIntPool(1)
	defer p.Close()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Drain(ended) // starts it
	for name, find := range map[string]func(context.Context) (*slot[int], error){"find": p.find, "tryFind": p.tryFind} {
		if _, err := find(context.Background()); !errors.Is(err, sema.ErrDraining) {
			t.Errorf("%s: %v, want ErrDraining", name, err)
		}
	}
}
