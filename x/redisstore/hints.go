package redisstore

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// channel is where an instance is told that it has news.
func (s *Store) channel(instance string) string { return s.options.Prefix + "hints:" + instance }

// Listen is for [fleet.Store]. What is published while a connection is down is
// lost, and heard of at the next sign of life.
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errClosed) })()
	var wg sync.WaitGroup
	for _, server := range s.servers {
		wg.Go(func() { s.subscribe(ctx, server, instance, hint) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// subscribe hears from one server until ctx ends.
func (s *Store) subscribe(ctx context.Context, server *server, instance string, hint func(name string)) {
	for ctx.Err() == nil {
		began := time.Now()
		// A connection of its own: one that is read all the time is slower to answer.
		_ = server.now().Dedicated(func(client rueidis.DedicatedClient) error {
			return client.Receive(ctx, client.B().Subscribe().Channel(s.channel(instance)).Build(), func(m rueidis.PubSubMessage) {
				hint(m.Message)
			})
		})
		// Not at once, and not all instances at the same time.
		pause := 100*time.Millisecond + rand.N(400*time.Millisecond)
		if time.Since(began) > 10*time.Second {
			pause = rand.N(100 * time.Millisecond)
		}
		sleep(ctx, pause)
	}
}
