package redisstore

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
)

// A closable is a client that can only be closed.
type closable struct {
	rueidis.Client
	closed atomic.Bool
}

func (c *closable) Close() { c.closed.Store(true) }

func TestServer_CallersWaitForNewConnectionsNoLongerThanTheirContexts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		old, fresh := &closable{}, &closable{}
		attempts := 0
		s := &server{connect: func() (rueidis.Client, error) {
			attempts++
			time.Sleep(5 * time.Second)
			return fresh, nil
		}}
		var client rueidis.Client = old
		s.client.Store(&client)
		began := time.Now()
		for range 3 {
			go func() {
				within, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				s.replace(within)
				if took := time.Since(began); took > time.Second {
					t.Errorf("a caller with a second left waited for %v", took)
				}
			}()
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if s.current() != rueidis.Client(fresh) || !old.closed.Load() || attempts != 1 {
			t.Errorf("%d attempts, and the old client is closed: %t", attempts, old.closed.Load())
		}
		time.Sleep(time.Second)
		go s.replace(t.Context())
		time.Sleep(time.Second)
		s.close() // does not wait for the attempt, whose client is closed at its end
		if took := time.Since(began); took != 8*time.Second || !fresh.closed.Load() {
			t.Errorf("closed after %v", took)
		}
		fresh.closed.Store(false)
		time.Sleep(10 * time.Second)
		if !fresh.closed.Load() {
			t.Error("the client that was opened during the close stays open")
		}
	})
}
