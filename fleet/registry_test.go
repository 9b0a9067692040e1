package fleet_test

import (
	"context"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

func TestOpen_ByURL(t *testing.T) {
	t.Parallel()
	c, err := fleet.Open(context.Background(), "mem:")
	wantErr(t, err, nil)
	s := semaphore(t, c, of(1))
	mustAcquire(t, s, 1).Release()
	wantErr(t, c.Close(context.Background()), nil)
	for _, storeURL := range []string{"nosuch://host", "redis://user:secret@%zz", "127.0.0.1:6379", "redis", ""} {
		_, err := fleet.Open(context.Background(), storeURL)
		if wantErr(t, err, sema.ErrInvalid); sema.Hint(err) == "" {
			t.Errorf("%q: %v has no hint", storeURL, err)
		}
	}
}
