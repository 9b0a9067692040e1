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
	"github.com/sema-go/sema/x/internal/notify"
)

// A server is one Redis, the primary that Sentinel names, or a cluster. If it turns out
// to be a replica, the client connects again to find the primary, at the same address or
// through Sentinel.
type server struct {
	address string // for messages, and for the selection by serverOf
	connect func() (rueidis.Client, error)
	client  atomic.Pointer[rueidis.Client]
	epochs  []atomic.Int64 // see location; one for each slot of a cluster, otherwise one
	hub     *notify.Hub
	caller

	mu        sync.Mutex    // guards the fields below
	replacing chan struct{} // closed when the replacement under way has ended; nil: there is none
	replaced  time.Time     // when the last one ended
	closed    bool
}

// current returns the client to send commands with.
func (s *server) current() rueidis.Client { return *s.client.Load() }

// replace replaces the client by one with new connections, at most once a second, and waits
// for that until ctx ends. Concurrent callers wait for the same one. Commands in flight on
// the old connections fail.
func (s *server) replace(ctx context.Context) {
	s.mu.Lock()
	if s.replacing == nil && !s.closed && time.Since(s.replaced) >= time.Second {
		s.replacing = make(chan struct{})
		go s.reconnect(s.replacing)
	}
	done := s.replacing
	s.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// reconnect connects again and closes the old client. If that fails, the next command uses
// the old client.
func (s *server) reconnect(done chan<- struct{}) {
	defer close(done)
	fresh, err := s.connect()
	s.mu.Lock()
	s.replacing, s.replaced = nil, time.Now()
	unused := &fresh
	if err == nil && !s.closed {
		unused = s.client.Swap(&fresh)
	}
	s.mu.Unlock()
	if err == nil {
		(*unused).Close()
	}
}

func (s *server) close() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		s.current().Close()
	}
}

// errLayout returns the error for a semaphore in a layout that this program cannot read;
// see STATE in script/1_state.lua.
func errLayout(err error) error {
	if isReply(err, "SEMALAYOUT unreleased") {
		return fmt.Errorf("%w: it was created by an unreleased version of Sema (hint: delete it, or use another prefix or database)", protocol.ErrVersion)
	}
	return errOtherRelease
}

var errOtherRelease = fmt.Errorf("%w: another release of Sema has written it, in a layout that this one cannot read (hint: use one release for all clients)", protocol.ErrVersion)

// run calls a function of the program. It retries a call a few times if the server
// rejects it temporarily, without applying it. It retries a call without a reply once if
// the call is repeatable, that is, may be applied twice: the first call on a connection
// that was cut while idle fails.
func (s *Store) run(ctx context.Context, f function, repeatable bool, at location, request packer, leases ...string) (rueidis.RedisResult, error) {
	args := make([]string, 0, 3+len(leases))
	args = append(append(args, at.name, s.channels, rueidis.BinaryString(request)), leases...)
	for pause := 20 * time.Millisecond; ; {
		result := at.server.call(ctx, at.server.current(), s.program, f, repeatable, at.keys, args)
		err := result.Error()
		if err == nil {
			return result, nil
		}
		if s.ctx.Err() != nil {
			return result, errClosed
		}
		if isReply(err, "SEMALAYOUT") {
			return result, errLayout(err)
		}
		_, replied := rueidis.IsRedisErr(err)
		if repeatable && !replied {
			repeatable = false
			continue
		}
		if isReply(err, "READONLY") {
			at.server.replace(ctx)
		}
		if !isTransient(err) || pause > 300*time.Millisecond || !sleep(ctx, pause/2+rand.N(pause)) {
			return result, explain(ctx, at.server.address, err)
		}
		pause *= 2
	}
}

// sleep waits for d. It returns false if ctx ends first.
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
