package group_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/sematest"
)

func TestKeyed_BoundsEachKey(t *testing.T) {
	t.Parallel()
	k := group.NewKeyed(2, sema.Name("jobs"))
	k.Set("vip", 5)
	for key, want := range map[string]int{"a": 2, "b": 2, "vip": 5} {
		n := 0
		for {
			p, err := k.Of(key).TryAcquire(ctx, 1)
			if err != nil {
				if !errors.Is(err, sema.ErrFull) || !strings.Contains(err.Error(), `"jobs/`+key+`"`) {
					t.Error(err)
				}
				break
			}
			defer p.Release()
			n++
		}
		if n != want {
			t.Errorf("key %s: %d permits, want %d", key, n, want)
		}
	}
	keys := map[string]int64{}
	for key, s := range k.All() {
		keys[key] = s.Stats().InUse
	}
	if len(keys) != 3 || keys["vip"] != 5 {
		t.Error(keys)
	}
}

func TestKeyed_ForgetsIdleKeys(t *testing.T) {
	t.Parallel()
	k := group.NewKeyed(1)
	k.Set("set", 7)
	held, err := k.Of("held").Acquire(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		p, err := k.Of(fmt.Sprint(i)).Acquire(ctx, 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	count := func() (n int) {
		for range k.All() {
			n++
		}
		return n
	}
	for end := time.Now().Add(time.Minute); count() != 2; time.Sleep(time.Millisecond) {
		runtime.GC()
		if time.Now().After(end) {
			t.Fatalf("%d keys remain", count())
		}
	}
	if _, err := k.Of("held").TryAcquire(ctx, 1); !errors.Is(err, sema.ErrFull) { //semavet:ignore wants an error
		t.Errorf("the permit of a key was forgotten: %v", err)
	}
	if k.Of("set").Stats().Capacity != 7 {
		t.Error("the capacity of a key was forgotten")
	}
	held.Release()
}

func TestKeyed_Conforms(t *testing.T) {
	t.Parallel()
	sematest.Check(t, sematest.Traits{FIFO: true, Weights: true, Split: true}, func(t *testing.T, capacity int64) sema.Gate {
		return group.NewKeyed(capacity).Of("a")
	})
}
