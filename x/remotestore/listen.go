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

	// helloWithin is for the first message of a stream. How soon the next ones come
	// is said in it; missed is how many of them may be.
	helloWithin = 5 * time.Second
	missed      = 3
)

// Listen is for [fleet.Store]. After whatever failure it begins anew, at the next
// server, and has all that this store uses be looked at: hints may have been missed.
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	for pause, again := firstPause, false; ; again = true {
		heard, err := s.listen(ctx, instance, hint, again)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errors.ErrUnsupported):
			return err
		case heard:
			pause = firstPause
		}
		if heard && err == nil {
			continue // it was only for the service to know that somebody is there
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, lastPause)
	}
}

// errSilent is why a stream is given up.
var errSilent = errors.New("nothing was heard for too long")

// listen hears one stream to its end, and reports whether anything was heard.
func (s *Store) listen(ctx context.Context, instance string, hint func(name string), again bool) (heard bool, err error) {
	to, turn := s.servers.now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := helloWithin
	watchdog := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer watchdog.Stop()
	stream, err := to.client.Listen(ctx, &semav1.StoreListenRequest{Instance: []byte(instance)})
	if err == nil {
		for stream.Receive() {
			m := stream.Msg()
			if !heard {
				heard = true
				if m.Heartbeat > 0 {
					patience = missed * time.Duration(m.Heartbeat) * time.Microsecond
				}
				if again {
					s.tellAll(hint)
				}
			}
			watchdog.Reset(patience)
			for _, name := range m.Names {
				hint(name)
			}
		}
		err = errors.Join(stream.Err(), stream.Close())
	}
	if fault, answered := wire.ReadFault(err); answered {
		err = s.told(ctx, fault)
	}
	if err != nil {
		s.servers.leave(turn)
		_, _ = s.token.read() // it may be the reason, and the next call says so if it still is
	}
	return heard, err
}

// names are those of the semaphores that were used last.
type names struct {
	used     map[string]time.Time
	forgetAt int // how many there may be before those are forgotten that nobody uses
}

const (
	leastForgotten = 256
	unused         = 10 * time.Minute
)

func (s *Store) noteName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := &s.names
	now := time.Now()
	if _, known := n.used[name]; !known && len(n.used) >= max(n.forgetAt, leastForgotten) {
		maps.DeleteFunc(n.used, func(_ string, last time.Time) bool { return now.Sub(last) > unused })
		n.forgetAt = 2 * len(n.used)
	}
	n.used[name] = now
}

// tellAll is when hints may have been missed.
func (s *Store) tellAll(hint func(name string)) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.names.used))
	s.mu.Unlock()
	for _, name := range all {
		hint(name)
	}
}
