package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
)

// A deniedStore denies every Open.
type deniedStore struct{ fleet.Store }

func (deniedStore) Open(context.Context, string, protocol.Config, protocol.Opener) (protocol.Session, protocol.Config, error) {
	return 0, protocol.Config{}, fmt.Errorf("%w: this token may not acquire", fs.ErrPermission)
}

// TestSemaphore_PermissionErrorFailsAtOnce checks that a caller without the right to acquire does
// not wait.
func TestSemaphore_PermissionErrorFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, deniedStore{memstore.New()})
		s := semaphore(t, c, of(1))
		start := time.Now()
		_, err := s.Acquire(t.Context(), 1)
		if !errors.Is(err, fs.ErrPermission) || errors.Is(err, sema.ErrUnavailable) || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// A denyingStore denies every Apply while denied is set, as a service that has removed the
// token.
type denyingStore struct {
	fleet.Store
	denied atomic.Bool
}

func (d *denyingStore) Apply(ctx context.Context, name string, b protocol.Batch) (protocol.Reply, error) {
	if d.denied.Load() {
		return protocol.Reply{}, fmt.Errorf("%w: unknown token", fs.ErrPermission)
	}
	return d.Store.Apply(ctx, name, b)
}

// TestSemaphore_DenialIsAReply denies access to a client that has a session: a waiter and new
// callers fail at once, the local limit does not apply, and the lease continues if the denial
// ends in time.
func TestSemaphore_DenialIsAReply(t *testing.T) {
	t.Parallel()
	for _, mode := range []fleet.Mode{fleet.ModeExact, fleet.ModePooled} {
		synctest.Test(t, func(t *testing.T) {
			var events eventLog
			store := &denyingStore{Store: memstore.New()}
			c, _ := newClient(t, store)
			s := semaphore(t, c, of(1, mode, sema.Observe(&events), fleet.FailOpen(1), fleet.FailOpenAfter(time.Second)))
			held := mustAcquire(t, s, 1)
			waited := make(chan error, 1)
			go func() {
				_, err := s.Acquire(t.Context(), 1)
				waited <- err
			}()
			synctest.Wait()
			store.denied.Store(true)
			denied := func(what string, err error) {
				t.Helper()
				wantErr(t, err, fs.ErrPermission)
				if errors.Is(err, sema.ErrUnavailable) || !strings.Contains(err.Error(), "unknown token") {
					t.Errorf("%s: %v", what, err)
				}
			}
			denied("the waiter", <-waited) // with the next heartbeat
			start := time.Now()
			_, err := s.Acquire(t.Context(), 1)
			denied("acquire", err)
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("denied after %v", took)
			}
			time.Sleep(2 * time.Second) // longer than FailOpenAfter
			if stats := s.Stats(); stats.FailedOpen || events.count(sema.EventFailedOpen) > 0 {
				t.Errorf("failed open: %+v", stats)
			}
			store.denied.Store(false)
			time.Sleep(20 * time.Second)
			wantErr(t, held.Err(), nil)
			held.Release()
			mustAcquire(t, s, 1).Release()
		})
	}
}

// TestSemaphore_DenialBeforeATry checks the error of callers that come while the client pauses
// after a denial.
func TestSemaphore_DenialBeforeATry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := newClient(t, deniedStore{memstore.New()})
		s := semaphore(t, c, of(1, fleet.TryTimeout(time.Millisecond)))
		for range 20 { // the pauses grow
			_, err := s.TryAcquire(t.Context(), 1)
			wantErr(t, err, fs.ErrPermission)
			if errors.Is(err, sema.ErrUnavailable) {
				t.Fatal(err)
			}
		}
	})
}
