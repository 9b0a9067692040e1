package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
)

// A hangingStore does not reply to a deletion.
type hangingStore struct{ *memstore.Store }

func (hangingStore) Administer(ctx context.Context, _ string, _ fleet.Command) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestIdle_DeletionIsBounded checks that the deletion of an idle semaphore, which locks the semaphore,
// ends although the store does not reply.
func TestIdle_DeletionIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := newService(hangingStore{memstore.New()}, Options{Logger: slog.New(slog.DiscardHandler), Limits: Limits{Idle: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		if _, _, err := s.configure(t.Context(), "db", conditions{}, settings{Capacity: new(int64(4))}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour + storeTimeout/2) // a deletion may be in progress
		ctx, cancel := context.WithTimeout(t.Context(), 2*storeTimeout)
		defer cancel()
		if _, err := s.acquire(ctx, acquireRequest{semaphore: "db", weight: 1}); err != nil {
			t.Error(err)
		}
	})
}

// TestExamination_CallersNeedNotWait checks that a caller whose context has ended does not wait for
// the examination of another caller.
func TestExamination_CallersNeedNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := examination{turn: make(chan struct{}, 1)}
		reply := make(chan struct{})
		go e.findings(t.Context(), func(context.Context) ([]fleet.Finding, error) {
			<-reply
			return nil, fs.ErrClosed
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.findings(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		close(reply)
		one := []fleet.Finding{{Check: "one"}}
		for range 2 {
			found, err := e.findings(t.Context(), func(context.Context) ([]fleet.Finding, error) { return one, nil })
			if err != nil || len(found) != 1 {
				t.Error(found, err)
			}
		}
	})
}
