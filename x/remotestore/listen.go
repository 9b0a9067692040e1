package remotestore

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
)

const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second

	// helloTimeout bounds the wait for the first message of a stream, which contains the
	// interval of heartbeats.
	helloTimeout = 5 * time.Second
	// missedHeartbeats is the number of heartbeats after which a stream without messages
	// is closed.
	missedHeartbeats = 3
)

// Listen implements [fleet.Store]. After any failure it listens again at the next server.
// It then calls notify for all semaphores that this store uses, since notifications may
// have been missed.
func (s *Store) Listen(ctx context.Context, instance string, notify func(name string)) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for pause, again := s.pause, false; ; again = true {
		received, err := s.listen(ctx, instance, notify, again)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errors.ErrUnsupported):
			return err
		case received:
			pause = s.pause
		}
		if received && err == nil {
			continue // the lifetime of the stream has ended
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, lastPause)
	}
}

// errNoHeartbeat is the cause of closing a stream without messages.
var errNoHeartbeat = errors.New("no heartbeat received in time")

// listen receives one stream until it ends, and reports whether it received a message. If
// again is set, it calls notify for all semaphores in use after the first message.
func (s *Store) listen(ctx context.Context, instance string, notify func(name string), again bool) (received bool, err error) {
	to, turn := s.servers.current()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timeout := helloTimeout
	watchdog := time.AfterFunc(timeout, func() { cancel(errNoHeartbeat) })
	defer watchdog.Stop()
	stream, err := to.client.Listen(ctx, &semav1.StoreListenRequest{Instance: []byte(instance)})
	if err == nil {
		for stream.Receive() {
			m := stream.Msg()
			if !received {
				received = true
				if m.Heartbeat > 0 {
					timeout = missedHeartbeats * time.Duration(m.Heartbeat) * time.Microsecond
				}
				if again {
					s.notifyAll(notify)
				}
			}
			watchdog.Reset(timeout)
			for _, name := range m.Names {
				notify(name)
			}
		}
		err = errors.Join(stream.Err(), stream.Close())
	}
	if fault, ok := wire.ReadFault(err); ok {
		err = s.remoteError(ctx, fault)
	}
	if err != nil {
		s.servers.failOver(turn)
		_, _ = s.token.read() // the token may be the reason; the next call reports it if it still is
	}
	return received, err
}

// notifyAll calls notify for all semaphores that this store uses, after notifications may
// have been missed.
func (s *Store) notifyAll(notify func(name string)) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.names.used))
	s.mu.Unlock()
	for _, name := range all {
		notify(name)
	}
}
