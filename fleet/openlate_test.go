package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

var (
	errStart = errors.New("the start took too long")
	errOwn   = fmt.Errorf("read: %w", context.DeadlineExceeded)
)

func init() { // once, whatever -count is
	fleet.Register("unresponsive", func(ctx context.Context, u *url.URL) (fleet.Store, error) {
		if u.Path == "/own" {
			return nil, errOwn
		}
		<-ctx.Done()
		if u.Path == "/access" {
			return nil, fleet.FaultAccess
		}
		return nil, context.Cause(ctx)
	})
}

// TestOpen_WithoutReplyIsUnavailable checks that a program that retries Open on ErrUnavailable
// also does so when its context ends first, or the store has a timeout of its own.
func TestOpen_WithoutReplyIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late, cancel := context.WithTimeoutCause(t.Context(), time.Second, errStart)
		defer cancel()
		_, err := fleet.Open(late, "unresponsive://user:secret@host:1/")
		if !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, errStart) || sema.Hint(err) == "" || !strings.Contains(err.Error(), "unresponsive://host:1: ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, hint %q", err, sema.Hint(err))
		}
		if _, err := fleet.Open(t.Context(), "unresponsive://host/own"); !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, errOwn) {
			t.Error(err)
		}
		if _, err := fleet.Open(late, "unresponsive://host/access"); err != fleet.FaultAccess {
			t.Errorf("%v, want the fault: a retry does not help", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := fleet.Open(cancelled, "unresponsive://host/"); err != context.Canceled {
			t.Errorf("%v, want the cause", err)
		}
	})
}
