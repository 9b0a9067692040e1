package sema

import (
	"context"
	"sync"
	"testing"
	"time"
)

func TestSmoke(t *testing.T) {
	for _, opt := range []Option{Fair, Unfair, LIFO} {
		s := New(8, opt)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				for i := range 3000 {
					n := int64(1 + (g+i)%8)
					c, cc := ctx, context.CancelFunc(func() {})
					if i%7 == 0 {
						c, cc = context.WithTimeout(ctx, time.Duration(i)*time.Microsecond)
					}
					p, err := s.Acquire(c, n)
					if err == nil {
						p.Release()
						p.Release()
					}
					cc()
				}
			})
		}
		wg.Wait()
		cancel()
		if st := s.Stats(); st.InUse != 0 || st.Waiters != 0 || st.Free != 8 {
			t.Fatalf("%v %+v", opt, st)
		}
	}
}

func BenchmarkPermit(b *testing.B) {
	s := New(8)
	ctx := context.Background()
	b.ReportAllocs()
	for range b.N {
		p, _ := s.Acquire(ctx, 1)
		p.Release()
	}
}

func BenchmarkWeighted(b *testing.B) {
	s := NewWeighted(8)
	ctx := context.Background()
	for range b.N {
		s.Acquire(ctx, 1)
		s.Release(1)
	}
}
