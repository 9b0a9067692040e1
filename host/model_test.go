//go:build linux

package host_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"pgregory.net/rapid"
)

// TestSemaphore_BehavesLikeItsModel runs random operations one after the other, through
// two handles, and compares the results with a simple count and with the numbers that
// are not in use.
func TestSemaphore_BehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "sema-model")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		capacity := rapid.Int64Range(1, 130).Draw(t, "capacity")
		var handles [2]*host.Semaphore
		for i := range handles {
			if handles[i], err = host.Open("model", capacity, host.Dir(dir)); err != nil {
				t.Fatal(err)
			}
			defer handles[i].Close()
		}
		handle := func() *host.Semaphore { return handles[rapid.IntRange(0, 1).Draw(t, "handle")] }
		type numbered struct {
			sema.Permit
			slots []int64
		}
		var permits []numbered
		free := func() (slots []int64) { // below the capacity
			for n := range capacity {
				if !slices.ContainsFunc(permits, func(p numbered) bool { return slices.Contains(p.slots, n) }) {
					slots = append(slots, n)
				}
			}
			return slots
		}
		inUse := int64(0)
		pick := func() int {
			if len(permits) == 0 {
				t.Skip("no permit is held")
			}
			return rapid.IntRange(0, len(permits)-1).Draw(t, "permit")
		}
		t.Repeat(map[string]func(*rapid.T){
			"try": func(t *rapid.T) {
				n := rapid.Int64Range(0, 140).Draw(t, "weight")
				p, err := handle().TryAcquire(context.Background(), n)
				var want error
				switch {
				case n > capacity && capacity > 0:
					want = sema.ErrTooLarge
				case n > 0 && inUse+n > capacity:
					want = sema.ErrFull
				}
				if !errors.Is(err, want) {
					t.Fatalf("%d with %d of %d in use: %v, want %v", n, inUse, capacity, err, want)
				}
				if err == nil && n > 0 {
					permits = append(permits, numbered{p, free()[:n]})
					inUse += n
				}
			},
			"release": func(t *rapid.T) {
				i := pick()
				inUse -= permits[i].Weight()
				permits[i].Release()
				permits[i].Release()
				permits = append(permits[:i], permits[i+1:]...)
			},
			"split": func(t *rapid.T) {
				i := pick()
				if permits[i].Weight() < 2 {
					t.Skip("cannot be split")
				}
				n := rapid.Int64Range(1, permits[i].Weight()-1).Draw(t, "part")
				a, b, err := permits[i].Split(n)
				if err != nil {
					t.Fatal(err)
				}
				if slots := permits[i].Slots(); slots != nil {
					t.Fatalf("a permit that was split has the numbers %v", slots)
				}
				slots := permits[i].slots
				permits[i] = numbered{a, slots[:n]}
				permits = append(permits, numbered{b, slots[n:]})
			},
			"resize": func(t *rapid.T) {
				capacity = rapid.Int64Range(0, 140).Draw(t, "new capacity")
				if err := handle().Resize(context.Background(), capacity); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				stats, err := inspectStats(handle())
				want := sema.Stats{Capacity: capacity, InUse: inUse, Free: max(0, capacity-inUse), Debt: max(0, inUse-capacity)}
				if err != nil || stats != want {
					t.Fatalf("%+v %v, want %+v", stats, err, want)
				}
				stats = handle().Stats()
				stats.Counts = sema.Counts{}
				if stats != want {
					t.Fatalf("Stats %+v, want %+v", stats, want)
				}
				var held [][]int64
				for _, p := range permits {
					if got := p.Slots(); !slices.Equal(got, p.slots) {
						t.Fatalf("numbers %v, want %v", got, p.slots)
					}
					held = append(held, p.slots)
				}
				holders, err := inspectHolders(handle())
				if err != nil {
					t.Fatal(err)
				}
				var listed [][]int64
				for _, h := range holders {
					if int64(len(h.Slots)) != h.Weight {
						t.Fatalf("a holder of %d has the numbers %v", h.Weight, h.Slots)
					}
					listed = append(listed, h.Slots)
				}
				slices.SortFunc(held, slices.Compare[[]int64])
				slices.SortFunc(listed, slices.Compare[[]int64])
				if !slices.EqualFunc(listed, held, slices.Equal[[]int64]) {
					t.Fatalf("holders %v, want %v", listed, held)
				}
			},
		})
		for _, p := range permits {
			p.Release()
		}
	})
}
