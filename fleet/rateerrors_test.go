package fleet_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// TestRate_TimeoutHasAHintForRates checks that a rate does not advise to look for permits
// that are held too long: none are held.
func TestRate_TimeoutHasAHintForRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, memstore.New())
		s := semaphore(t, c, of(1, fleet.Rate(time.Minute), sema.MaxWait(time.Second)))
		mustAcquire(t, s, 1)
		_, err := s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrTimeout)
		if !strings.Contains(sema.Hint(err), "raise the rate") {
			t.Errorf("%v, hint %q", err, sema.Hint(err))
		}
		wantErr(t, c.Resize(context.Background(), "db", 0), nil)
		_, err = s.Acquire(context.Background(), 1)
		wantErr(t, err, sema.ErrTimeout)
		if !strings.Contains(sema.Hint(err), "0 pauses") {
			t.Errorf("%v, hint %q", err, sema.Hint(err))
		}
	})
}
