package callsite

import (
	"reflect"
	"sync"
	"testing"
)

// TestSiteOf_EntryOfAGoroutine checks that WaitGroup.Go, which starts a goroutine, is not taken for
// the caller.
func TestSiteOf_EntryOfAGoroutine(t *testing.T) {
	t.Parallel()
	entry := reflect.ValueOf((*sync.WaitGroup).Go).Pointer()
	if site := siteOf(entry + 1); site != "" {
		t.Errorf("site %q", site)
	}
}
