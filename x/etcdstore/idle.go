package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	sweepEvery = time.Minute // at most
	sweepHeads = 500         // at a time
)

// sweep looks for semaphores that were not used for long, whenever one is created: then
// their number grows. Those whose configuration was changed stay, since a client would
// create them again with another one.
func (s *Store) sweep() {
	s.mu.Lock()
	due := s.idle > 0 && time.Since(s.swept) > s.sweepEvery
	if due {
		s.swept = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.start(s.sweepSome)
	}
}

// sweepSome continues where the last one ended.
func (s *Store) sweepSome() {
	ctx, cancel := context.WithTimeout(s.life, 10*time.Second)
	defer cancel()
	client, err := s.connection.client(ctx)
	if err != nil {
		return // the next sweep tries again
	}
	heads := s.keys.head("")
	s.mu.Lock()
	from := s.cursor
	s.mu.Unlock()
	if from == "" {
		from = heads
	}
	r, err := client.Get(ctx, from, clientv3.WithRange(end(heads)), clientv3.WithLimit(sweepHeads))
	if err != nil {
		return
	}
	next := ""
	for _, found := range r.Kvs {
		next = string(found.Key) + "\x00"
		if h, err := parseHead(found); err == nil && s.isIdle(h) {
			s.forgetIdle(ctx, string(found.Key[len(heads):]))
		}
	}
	if !r.More {
		next = ""
	}
	s.mu.Lock()
	s.cursor = next
	s.mu.Unlock()
}

func (s *Store) isIdle(h head) bool {
	now := s.clock.wall()
	return h.Sessions == 0 && h.inUse(now) == 0 && h.Config.Version == 1 && protocol.Micros(h.Changed.Add(s.idle).UnixMicro()) < now
}

// forgetIdle deletes a semaphore if that is still so.
func (s *Store) forgetIdle(ctx context.Context, name string) {
	s.do(name, &call{ctx: ctx, size: 100, alone: true, act: func(_ protocol.Micros, v *view) outcome {
		if v.state != nil && s.isIdle(v.head) {
			v.state = nil
		}
		return outcome{}
	}})
}
