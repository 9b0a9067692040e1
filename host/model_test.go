//go:build linux

package host_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"pgregory.net/rapid"
)

// TestBehavesLikeItsModel does random things one after the other, through two
// handles, and compares with counting.
func TestBehavesLikeItsModel(t *testing.T) {
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
		type part struct {
			sema.Permit
			acquire int // which acquire it is a part of
		}
		var permits []part
		acquires := 0
		inUse := int64(0)
		pick := func() int {
			if len(permits) == 0 {
				t.Skip("none is out")
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
					acquires++
					permits = append(permits, part{p, acquires})
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
				a, b, err := permits[i].Split(rapid.Int64Range(1, permits[i].Weight()-1).Draw(t, "part"))
				if err != nil {
					t.Fatal(err)
				}
				permits[i].Permit = a
				permits = append(permits, part{b, permits[i].acquire})
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
					t.Fatalf("by shared memory %+v, want %+v", stats, want)
				}
				weights := map[int]int64{} // by acquire
				for _, p := range permits {
					weights[p.acquire] += p.Weight()
				}
				holders, err := inspectHolders(handle())
				if err != nil || len(holders) != len(weights) {
					t.Fatalf("%d holders %v, want %d", len(holders), err, len(weights))
				}
				got := []int64{}
				for _, h := range holders {
					got = append(got, h.Weight)
				}
				if want := slices.Collect(maps.Values(weights)); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
					t.Fatalf("weights %v, want %v", got, want)
				}
			},
		})
		for _, p := range permits {
			p.Release()
		}
	})
}
