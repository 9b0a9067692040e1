package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sema-go/sema/fleet/protocol"
)

const (
	sweepEvery = time.Minute // the least time between sweeps
	sweepHeads = 500         // the most heads of one sweep
)

// sweep deletes semaphores that were not used for long. It runs after a semaphore was
// created, because only then does their number grow. Semaphores whose configuration was
// changed stay, since a client would create them again with the original configuration.
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

// sweepSome examines up to sweepHeads semaphores, from where the last sweep ended.
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
			s.deleteIdle(ctx, string(found.Key[len(heads):]))
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

// deleteIdle deletes a semaphore if it is still idle.
func (s *Store) deleteIdle(ctx context.Context, name string) {
	s.do(name, &call{ctx: ctx, size: 100, alone: true, act: func(_ protocol.Micros, v *view) result {
		if v.state != nil && s.isIdle(v.head) {
			v.state = nil
		}
		return result{}
	}})
}
