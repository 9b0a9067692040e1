package classic_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/classic"
	"github.com/sema-go/sema/sematest"
)

// TestRWLock_Explored runs readers and writers, some of which give up, under many schedules.
func TestRWLock_Explored(t *testing.T) {
	t.Parallel()
	for _, p := range preferences {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			sematest.Explore(t, func(w *sematest.World) {
				l := classic.NewRWLock(p, classic.MaxReaders(2))
				reader, writer := w.Gate(l.Reader()), w.Gate(l.Writer())
				reading, writing := 0, 0
				w.Always("a writer is alone, and at most 2 read", func() bool {
					return writing == 0 && reading <= 2 || writing == 1 && reading == 0
				})
				w.Finally("the lock is free", func() bool {
					st := l.Stats()
					return st.Writers.Free == 1 && st.Readers.Free == 2 && st.Readers.Waiters+st.Writers.Waiters == 0
				})
				use := func(ctx context.Context, g sema.Gate, count *int, limit time.Duration) {
					limited, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					permit, err := g.Acquire(limited, 1)
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
							w.Errorf("acquire: %v", err)
						}
						return
					}
					*count++
					w.Yield()
					*count--
					permit.Release()
				}
				for i := range 3 {
					w.Go(fmt.Sprint("reader ", i), func(ctx context.Context) {
						for range 2 {
							use(ctx, reader, &reading, time.Duration(1+i)*time.Millisecond)
						}
					})
				}
				for i := range 2 {
					w.Go(fmt.Sprint("writer ", i), func(ctx context.Context) {
						for range 2 {
							use(ctx, writer, &writing, time.Duration(1+2*i)*time.Millisecond)
						}
					})
				}
			}, sematest.Slow(2*time.Millisecond))
		})
	}
}

// TestRWLock_KeepsItsPromiseUnderStress races readers, writers, cancels and timeouts outside of
// a bubble, where waiters are reused.
func TestRWLock_KeepsItsPromiseUnderStress(t *testing.T) {
	t.Parallel()
	for _, p := range preferences {
		l := classic.NewRWLock(p, sema.MaxWait(time.Hour))
		var reading, writing atomic.Int64
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range stressRounds {
					gate, count, other := l.Reader(), &reading, &writing
					if (g+i)%3 == 0 {
						gate, count, other = l.Writer(), &writing, &reading
					}
					ctx, cancel := context.WithCancel(context.Background())
					if (g+i)%4 == 0 {
						go cancel() // races with the grant
					}
					permit, err := gate.Acquire(ctx, 1)
					if err == nil {
						if now := count.Add(1); other.Load() != 0 || count == &writing && now != 1 {
							t.Error("a writer is not alone")
						}
						count.Add(-1)
						permit.Release()
					} else if err != context.Canceled {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		if st := l.Stats(); st.Writers.Free != 1 || st.Readers.InUse != 0 || st.Readers.Waiters+st.Writers.Waiters != 0 {
			t.Errorf("%v: %+v", p, st)
		}
	}
}
