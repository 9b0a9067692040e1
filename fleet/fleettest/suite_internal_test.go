package fleettest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestSuite_BoundsChecksByTheTest checks that a check on a slow machine fails only if the
// test binary would be out of time, unless the suite sets a timeout.
func TestSuite_BoundsChecksByTheTest(t *testing.T) {
	t.Parallel()
	ctx, cancel := Suite{}.bound(t)
	defer cancel()
	got, bounded := ctx.Deadline()
	end, limited := t.Deadline()
	if bounded != limited {
		t.Fatalf("bounded %t, want %t, as the test is", bounded, limited)
	}
	if left := time.Until(end); bounded && (got.After(end) || time.Until(got) < left*8/10) {
		t.Errorf("the check has %v of %v, want about 90 %%", time.Until(got), left)
	}

	ctx, cancel = Suite{Timeout: time.Millisecond}.bound(t)
	defer cancel()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "Suite.Timeout") {
		t.Errorf("cause %v, want DeadlineExceeded and the name of the setting", err)
	}
}
