package spinlock

import (
	"sync"
	"testing"
)

func TestLock_Excludes(t *testing.T) {
	var mu sync.Mutex
	var working sync.WaitGroup
	n := 0
	for range 8 {
		working.Go(func() {
			for range 1000 {
				Lock(&mu)
				n++
				mu.Unlock()
			}
		})
	}
	working.Wait()
	if n != 8000 {
		t.Errorf("%d increments, want 8000", n)
	}
}
