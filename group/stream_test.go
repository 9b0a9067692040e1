package group_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/group"
	"github.com/sema-go/sema/sematest"
)

func TestStream_YieldsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(4)
		sematest.NoneHeld(t, gate)
		var got []string
		start := time.Now()
		for v, err := range group.Stream(ctx, gate, slices.Values([]int{4, 1, 3, 2}), func(_ context.Context, v int) (int, error) {
			time.Sleep(time.Duration(v) * time.Second)
			if v == 3 {
				return 0, errA
			}
			return 10 * v, nil
		}) {
			got = append(got, fmt.Sprint(v, err))
		}
		if want := []string{"40 <nil>", "10 <nil>", "0 a", "20 <nil>"}; !slices.Equal(got, want) || time.Since(start) != 4*time.Second {
			t.Errorf("%v in %v, want %v in 4 s", got, time.Since(start), want)
		}
	})
}

func TestStream_BreakStopsEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(4)
		sematest.NoneHeld(t, gate)
		var running atomic.Int64
		for v, err := range group.Stream(ctx, gate, endless, func(ctx context.Context, v int) (int, error) {
			running.Add(1)
			defer running.Add(-1)
			if v > 2 {
				<-ctx.Done()
				time.Sleep(time.Second) // cleans up
			}
			return v, ctx.Err()
		}) {
			if err != nil {
				t.Error(err)
			}
			if v == 2 {
				break
			}
		}
		if running.Load() != 0 {
			t.Errorf("%d functions run after the loop", running.Load())
		}
	})
}

func endless(yield func(int) bool) {
	for i := 0; yield(i); i++ {
	}
}

func TestStream_SlowLoopHoldsNoPermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := sema.New(2)
		var called atomic.Int64
		for v := range group.Stream(ctx, gate, endless, func(_ context.Context, v int) (int, error) { called.Add(1); return v, nil }) {
			time.Sleep(time.Second)
			if n := called.Load() - int64(v); gate.Stats().InUse != 0 || n > 70 {
				t.Fatalf("%d permits are held, %d functions ahead", gate.Stats().InUse, n)
			}
			if v == 200 {
				break
			}
		}
	})
}

func TestStream_ContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var got []string
		for v, err := range group.Stream(ctx, sema.New(1), endless, func(ctx context.Context, v int) (int, error) {
			time.Sleep(time.Second)
			return v, nil
		}) {
			got = append(got, fmt.Sprint(v, " ", err))
			if v == 1 {
				cancel(errCause)
			}
		}
		if len(got) < 3 || got[1] != "1 <nil>" || got[len(got)-1] != "0 cause" {
			t.Errorf("%v, want the cause last", got)
		}
	})
}

func TestStream_Panics(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(gate sema.Gate){
		"function": func(gate sema.Gate) {
			for range group.Stream(ctx, gate, endless, func(context.Context, int) (int, error) { panic(errA) }) {
			}
		},
		"sequence": func(gate sema.Gate) {
			for range group.Stream(ctx, gate, func(yield func(int) bool) { yield(1); panic(errA) }, func(context.Context, int) (int, error) { return 0, nil }) {
			}
		},
		"loop": func(gate sema.Gate) {
			for range group.Stream(ctx, gate, endless, func(context.Context, int) (int, error) { return 0, nil }) {
				panic(errA)
			}
		},
		"sequence of Each": func(gate sema.Gate) {
			group.Each(ctx, gate, func(yield func(int) bool) { yield(1); panic(errA) }, func(context.Context, int) error { return nil })
		},
		"function of Map": func(gate sema.Gate) {
			group.Map(ctx, gate, []int{1, 2}, func(context.Context, int) (int, error) { panic(errA) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				gate := sema.New(2)
				sematest.NoneHeld(t, gate)
				defer func() {
					switch v := recover().(type) {
					case *group.Panic:
						if v.Value != errA {
							t.Error(v)
						}
					case error:
						if v != errA {
							t.Error(v)
						}
					default:
						t.Errorf("recovered %v", v)
					}
				}()
				run(gate)
				t.Error("no panic")
			})
		})
	}
}

func TestStream_SequenceThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	var got []string
	seq := func(yield func(int) bool) {
		yield(1)
		runtime.Goexit()
	}
	for v, err := range group.Stream(ctx, nil, seq, func(_ context.Context, v int) (int, error) { return v, nil }) {
		got = append(got, fmt.Sprint(v, " ", err))
	}
	if len(got) != 2 || got[0] != "1 <nil>" || !strings.Contains(got[1], "Goexit") {
		t.Errorf("%q, want the value and then an error", got)
	}
}
