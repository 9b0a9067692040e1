package redisstore

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Listen implements [fleet.Store]. All listeners share one connection to each server.
// Notifications that are sent while the connection is down are lost. Clients receive the
// changes with the reply to their next heartbeat instead.
func (s *Store) Listen(ctx context.Context, instance string, notify func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(errClosed) })()
	var wg sync.WaitGroup
	for _, server := range s.servers {
		wg.Go(func() { _ = server.hub.Listen(ctx, instance, notify) })
	}
	wg.Wait()
	return context.Cause(ctx)
}

// receive maintains the subscription for the hub of a server until ctx ends.
func (s *Store) receive(ctx context.Context, server *server) {
	for ctx.Err() == nil {
		began := time.Now()
		_ = s.subscribe(ctx, server)
		// Wait for a random time, so that instances do not reconnect at once or together.
		pause := 100*time.Millisecond + rand.N(400*time.Millisecond)
		if time.Since(began) > 10*time.Second {
			pause = rand.N(100 * time.Millisecond)
		}
		sleep(ctx, pause)
	}
}

// subscribe receives notifications until the connection is lost or ctx ends. It uses a
// dedicated connection, because replies on a connection with subscriptions are slower.
func (s *Store) subscribe(ctx context.Context, server *server) error {
	client, _ := server.current().Dedicate()
	defer client.Close() // otherwise the connection returns to the pool
	lost := client.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		if instance, own := strings.CutPrefix(m.Channel, s.channels); own {
			server.hub.Notify(instance, m.Message)
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

// change unsubscribes the connection from the channels of the instances in left, and
// subscribes it to those of the instances in joined.
func (s *Store) change(ctx context.Context, client rueidis.DedicatedClient, joined, left []string) error {
	if len(left) > 0 {
		if err := client.Do(ctx, client.B().Unsubscribe().Channel(s.channelsOf(left)...).Build()).Error(); err != nil {
			return err
		}
	}
	if len(joined) > 0 {
		return client.Do(ctx, client.B().Subscribe().Channel(s.channelsOf(joined)...).Build()).Error()
	}
	return nil
}

// channelsOf returns the channels of instances.
func (s *Store) channelsOf(instances []string) []string {
	channels := make([]string, len(instances))
	for i, instance := range instances {
		channels[i] = s.channels + instance
	}
	return channels
}
