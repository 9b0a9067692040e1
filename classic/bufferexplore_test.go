package classic_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/sematest"
)

// TestBuffer_Explored runs producers and consumers that move single items and batches, and
// some that give up, under many schedules. (A buffer made of counters and a mutex that is
// locked first, which deadlocks, is found by the tests of package sematest.)
func TestBuffer_Explored(t *testing.T) {
	t.Parallel()
	const capacity, producers = 2, 3
	sematest.Explore(t, func(w *sematest.World) {
		b := classic.NewBuffer[int](capacity)
		var added, removed [producers][]int // by producer, in its order
		w.Always("empty + full == capacity", func() bool {
			st := b.Stats()
			return st.Puts.Free+st.Takes.Free == capacity && st.Puts.Free >= 0 && st.Takes.Free >= 0 &&
				(st.Puts.Waiters == 0 || st.Puts.Free == 0) && (st.Takes.Waiters == 0 || st.Takes.Free == 0)
		})
		w.Finally("every item was taken once, in order", func() bool {
			for i := range added {
				if !slices.Equal(added[i], removed[i]) {
					return false
				}
			}
			return b.Len() == 0
		})
		left := producers
		for i := range producers {
			w.Go(fmt.Sprint("producer ", i), func(ctx context.Context) {
				for k := range 3 {
					items := []int{100*i + 10*k, 100*i + 10*k + 1, 100*i + 10*k + 2}[:1+(i+k)%3]
					limited, cancel := context.WithTimeout(ctx, time.Duration(1+i)*time.Millisecond)
					n, err := b.PutAll(limited, items)
					cancel()
					w.Yield()
					if n < len(items) && err == nil || n == len(items) && err != nil {
						w.Errorf("%d of %d items added, error %v", n, len(items), err)
					}
					added[i] = append(added[i], items[:n]...)
				}
				if left--; left == 0 {
					b.Close()
				}
			})
		}
		// Several consumers would remove items in order, and note them in any. So one notes.
		w.Go("consumer", func(ctx context.Context) {
			for into := make([]int, 2); ; {
				limited, cancel := context.WithTimeout(ctx, time.Millisecond)
				n, err := b.TakeUpTo(limited, into)
				cancel()
				w.Yield()
				for _, v := range into[:n] {
					removed[v/100] = append(removed[v/100], v)
				}
				if errors.Is(err, sema.ErrClosed) || ctx.Err() != nil {
					return
				}
			}
		})
	}, sematest.Slow(2*time.Millisecond))
}

// TestBuffer_ManyProducersAndConsumersExplored checks that no item is lost or doubled.
func TestBuffer_ManyProducersAndConsumersExplored(t *testing.T) {
	t.Parallel()
	sematest.Explore(t, func(w *sematest.World) {
		b := classic.NewBuffer[int](1)
		seen := map[int]int{}
		const each = 2
		for i := range 3 {
			w.Go(fmt.Sprint("producer ", i), func(ctx context.Context) {
				for k := range each {
					if err := b.Put(ctx, each*i+k); err != nil && ctx.Err() == nil {
						w.Errorf("put: %v", err)
					}
					w.Yield()
				}
			})
			w.Go(fmt.Sprint("consumer ", i), func(ctx context.Context) {
				for range each {
					v, err := b.Take(ctx)
					w.Yield()
					if err == nil {
						seen[v]++
					}
				}
			})
		}
		w.Finally("each item was taken once", func() bool {
			for v := range 3 * each {
				if seen[v] != 1 {
					return false
				}
			}
			return len(seen) == 3*each
		})
	})
}

// TestBuffer_CancelRacingHandOffLosesNoItem has consumers and producers whose contexts end
// while they are served. What they report must add up.
func TestBuffer_CancelRacingHandOffLosesNoItem(t *testing.T) {
	t.Parallel()
	for _, opts := range [][]sema.SharedOption{nil, {sema.MaxWait(time.Hour)}, {sema.Observe(sema.ObserverFunc(func(sema.Event) {}))}} {
		const goroutines = 4
		b := classic.NewBuffer[int](2, opts...)
		var mu sync.Mutex
		seen := map[int]int{} // +1 for an item put, -1 for one taken
		note := func(v, d int) {
			mu.Lock()
			defer mu.Unlock()
			seen[v] += d
		}
		var producers, consumers sync.WaitGroup
		for g := range goroutines {
			producers.Go(func() {
				for i := range stressRounds {
					ctx, cancel := context.WithCancel(context.Background())
					if i%2 == 0 {
						go cancel()
					}
					if i%3 == 0 {
						batch := []int{-3 * (g*stressRounds + i), -3*(g*stressRounds+i) - 1, -3*(g*stressRounds+i) - 2}
						n, _ := b.PutAll(ctx, batch)
						for _, v := range batch[:n] {
							note(v, 1)
						}
					} else if v := 1 + g*stressRounds + i; b.Put(ctx, v) == nil {
						note(v, 1)
					}
					cancel()
				}
			})
			consumers.Go(func() {
				for i := 0; ; i++ {
					ctx, cancel := context.WithCancel(context.Background())
					if i%2 == 0 {
						go cancel()
					}
					v, err := b.Take(ctx)
					cancel()
					if err == nil {
						note(v, -1)
					} else if errors.Is(err, sema.ErrClosed) {
						return
					}
				}
			})
		}
		producers.Wait()
		b.Close()
		consumers.Wait()
		for v, n := range seen {
			if n != 0 {
				t.Errorf("item %d: %d put and not taken", v, n)
			}
		}
	}
}
