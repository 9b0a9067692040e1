package group_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/sematest"
)

func TestEach_CallsForEachValue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(2)
		sematest.NoneHeld(t, gate)
		var mu sync.Mutex
		var seen []int
		err := group.Each(ctx, gate, slices.Values([]int{1, 2, 3, 4}), func(_ context.Context, v int) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, v)
			return nil
		})
		if slices.Sort(seen); err != nil || !slices.Equal(seen, []int{1, 2, 3, 4}) {
			t.Errorf("%v: %v", err, seen)
		}
		taken := 0
		err = group.Each(ctx, gate, func(yield func(int) bool) {
			for yield(taken) {
				taken++
			}
		}, func(ctx context.Context, v int) error {
			time.Sleep(time.Second)
			if v == 3 {
				return errA
			}
			return nil
		})
		if err != errA || taken > 6 {
			t.Errorf("%v after %d values of an endless sequence", err, taken)
		}
	})
}

func TestMap_ReturnsResultsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(3)
		sematest.NoneHeld(t, gate)
		double := func(_ context.Context, v int) (int, error) {
			time.Sleep(time.Duration(10-v) * time.Second) // the last ends first
			if v == 9 {
				return 0, errA
			}
			return 2 * v, nil
		}
		got, err := group.Map(ctx, gate, []int{1, 2, 3, 4, 5}, double)
		if err != nil || !slices.Equal(got, []int{2, 4, 6, 8, 10}) {
			t.Errorf("%v, %v", got, err)
		}
		got, err = group.Map(ctx, gate, []int{1, 9, 3, 4}, double)
		if err != errA || got != nil {
			t.Errorf("%v, %v", got, err)
		}
	})
}
