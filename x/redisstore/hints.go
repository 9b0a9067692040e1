package redisstore

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// channel returns the channel on which an instance gets notifications.
func (s *Store) channel(instance string) string { return s.options.Prefix + "notify:" + instance }

// Listen implements [fleet.Store]. All listeners share a connection to each server.
// Notifications while it is down are lost; the next heartbeat makes up for them.
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(errClosed) })()
	var wg sync.WaitGroup
	for _, server := range s.servers {
		wg.Go(func() { _ = server.hub.Listen(ctx, instance, hint) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// receive keeps a subscription for the hub of a server, until ctx ends.
func (s *Store) receive(ctx context.Context, server *server) {
	for ctx.Err() == nil {
		began := time.Now()
		_ = s.subscribe(ctx, server)
		// Not at once, and not all instances at the same time.
		pause := 100*time.Millisecond + rand.N(400*time.Millisecond)
		if time.Since(began) > 10*time.Second {
			pause = rand.N(100 * time.Millisecond)
		}
		sleep(ctx, pause)
	}
}

// subscribe receives notifications until the connection is lost or ctx ends. It uses a
// connection of its own: replies are slower on one that is read all the time.
func (s *Store) subscribe(ctx context.Context, server *server) error {
	client, _ := server.now().Dedicate()
	defer client.Close() // or it would return to the pool
	lost := client.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		if instance, own := strings.CutPrefix(m.Channel, s.channel("")); own {
			server.hub.Tell(instance, m.Message)
		}
	}})
	server.hub.Changes()
	joined, left := server.hub.All(), []string{}
	for {
		if err := s.change(ctx, client, joined, left); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-lost:
			return err
		case <-server.hub.Changed():
			joined, left = server.hub.Changes()
		}
	}
}

// change subscribes a connection to the channels of instances, and unsubscribes others.
func (s *Store) change(ctx context.Context, client rueidis.DedicatedClient, joined, left []string) error {
	if len(left) > 0 {
		if err := client.Do(ctx, client.B().Unsubscribe().Channel(s.channels(left)...).Build()).Error(); err != nil {
			return err
		}
	}
	if len(joined) > 0 {
		return client.Do(ctx, client.B().Subscribe().Channel(s.channels(joined)...).Build()).Error()
	}
	return nil
}

func (s *Store) channels(instances []string) []string {
	channels := make([]string, len(instances))
	for i, instance := range instances {
		channels[i] = s.channel(instance)
	}
	return channels
}
