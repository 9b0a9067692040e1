package admit

import (
	"sync"
	"sync/atomic"
	"time"
)

// windowBuckets is into how many parts a window of time is divided. Results leave it one
// part at a time.
const windowBuckets = 10

// A window counts the results of the last period. Recording a result takes one atomic
// addition, and a lock when a part of the window ends.
type window struct {
	width   time.Duration // of a bucket
	mu      sync.Mutex    // held while a bucket is reused
	buckets [windowBuckets]bucket
}

// A bucket counts the results of one part of the window.
type bucket struct {
	part   atomic.Uint64 // number of the part; its buckets are used in turn
	calls  atomic.Int64
	failed atomic.Int64
	slow   atomic.Int64
}

// counts are the results in a window.
type counts struct{ calls, failed, slow int64 }

// record counts a result.
func (w *window) record(now time.Duration, failed, slow bool) {
	b := w.bucket(now)
	b.calls.Add(1)
	if failed {
		b.failed.Add(1)
	}
	if slow {
		b.slow.Add(1)
	}
}

// bucket returns the bucket of a time. A result that is recorded while the bucket is reused
// may count in the next period: the ratio does not depend on it.
func (w *window) bucket(now time.Duration) *bucket {
	part := uint64(now / w.width)
	b := &w.buckets[part%windowBuckets]
	if b.part.Load() != part {
		w.mu.Lock()
		if b.part.Load() != part {
			b.clear()
			b.part.Store(part)
		}
		w.mu.Unlock()
	}
	return b
}

func (b *bucket) clear() {
	b.calls.Store(0)
	b.failed.Store(0)
	b.slow.Store(0)
}

// sum returns the results of the window that ends now.
func (w *window) sum(now time.Duration) (n counts) {
	part := uint64(now / w.width)
	for i := range w.buckets {
		if b := &w.buckets[i]; part-b.part.Load() < windowBuckets {
			n.calls += b.calls.Load()
			n.failed += b.failed.Load()
			n.slow += b.slow.Load()
		}
	}
	return n
}

// reset forgets all results.
func (w *window) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.buckets {
		w.buckets[i].clear()
	}
}
