package dashboard

import (
	"fmt"
	"testing"
)

// TestReader_KeepsFewPages checks that the number of cached pages is bounded: viewers choose the
// cursor.
func TestReader_KeepsFewPages(t *testing.T) {
	t.Parallel()
	r := newReader(nil, nil, nil)
	for i := range 10 * mostShared {
		r.entryOf(entryKey{"db", fmt.Sprintf("h%0*d", i+1, 0)})
	}
	if len(r.read) > mostShared {
		t.Errorf("%d pages are cached, want at most %d", len(r.read), mostShared)
	}
	first := r.entryOf(entryKey{"db", ""})
	if r.entryOf(entryKey{"db", ""}) != first {
		t.Error("the first page of a semaphore is not shared")
	}
}
