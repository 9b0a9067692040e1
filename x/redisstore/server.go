package redisstore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/hints"
)

// A server is one Redis, or the primary that Sentinel names, or a cluster. If it turns out
// to be a replica, new connections find its primary, at the same address or through
// Sentinel.
type server struct {
	address string // for messages, and for the choice among several
	connect func() (rueidis.Client, error)
	client  atomic.Pointer[rueidis.Client]
	epochs  []atomic.Int64 // see place; one for each slot of a cluster
	hub     *hints.Hub
	caller

	mu       sync.Mutex
	replaced time.Time
	closed   bool
}

func (s *server) now() rueidis.Client { return *s.client.Load() }

// replace opens new connections, at most once a second. Commands in flight on the old
// ones fail.
func (s *server) replace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || time.Since(s.replaced) < time.Second {
		return
	}
	s.replaced = time.Now()
	fresh, err := s.connect()
	if err != nil {
		return // the next command tries the old ones again
	}
	old := s.now()
	s.client.Store(&fresh)
	old.Close()
}

func (s *server) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		s.now().Close()
	}
}

// errLayout is for a semaphore in a layout that this program cannot read, see STATE in
// script/1_state.lua.
func errLayout(err error) error {
	if says(err, "SEMALAYOUT unreleased") {
		return fmt.Errorf("%w: it was created by an unreleased version of Sema (hint: delete it, or use another prefix or database)", protocol.ErrVersion)
	}
	return errOtherRelease
}

var errOtherRelease = fmt.Errorf("%w: another release of Sema has written it, in a layout that this one cannot read (hint: use one release for all clients)", protocol.ErrVersion)

// run calls a function of the program. A call that the server rejects for the moment, and
// has not applied, is tried again a few times. A call without a reply is tried once more
// if it may be applied twice: a connection that was cut while idle fails the first call
// on it.
func (s *Store) run(ctx context.Context, f function, twice bool, at place, request packer, leases ...string) (rueidis.RedisResult, error) {
	args := make([]string, 0, 3+len(leases))
	args = append(append(args, at.name, s.channel(""), rueidis.BinaryString(request)), leases...)
	for pause := 20 * time.Millisecond; ; {
		result := at.server.call(ctx, at.server.now(), s.program, f, at.keys, args)
		err := result.Error()
		if err == nil {
			return result, nil
		}
		if s.life.Err() != nil {
			return result, errClosed
		}
		if says(err, "SEMALAYOUT") {
			return result, errLayout(err)
		}
		_, replied := rueidis.IsRedisErr(err)
		if twice && !replied {
			twice = false
			continue
		}
		if says(err, "READONLY") {
			at.server.replace()
		}
		if !passing(err) || pause > 300*time.Millisecond || !sleep(ctx, pause/2+rand.N(pause)) {
			return result, explain(ctx, at.server.address, err)
		}
		pause *= 2
	}
}

// sleep waits, and reports whether ctx has lasted that long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
