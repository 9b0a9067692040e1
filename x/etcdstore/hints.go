package etcdstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// listenTTL is how many seconds the key of an instance that listens outlives it.
const listenTTL = 30

// Listen implements [fleet.Store]. An instance that listens has a key, under a lease
// of etcd's. A process with results for it puts the semaphore's name there in the same
// write; without such a key no process listens. So a grant costs one message, however
// many wait. Listen starts over after any failure.
func (s *Store) Listen(ctx context.Context, instance string, hint func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(s.fault(errClosed)) })()
	for pause, again := firstPause, false; ; again = true {
		began := time.Now()
		_ = s.listen(ctx, instance, func(name string) {
			s.noteHint(name)
			hint(name)
		}, func() {
			if again {
				s.tellAll(hint)
			}
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if time.Since(began) > listenTTL*time.Second {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, 10*lastPause)
	}
}

// tellAll notifies of all semaphores, when notifications may have been missed.
func (s *Store) tellAll(hint func(name string)) {
	s.mu.Lock()
	var names []string
	for name := range s.semaphores {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		hint(name)
	}
}

// noteHint makes the worker of a semaphore read before it writes.
func (s *Store) noteHint(name string) {
	s.mu.Lock()
	found := s.semaphores[name]
	s.mu.Unlock()
	if found != nil {
		found.hint()
	}
}

var errLeaseEnded = errors.New("the lease on the key for notifications has ended")

// listen listens until it fails.
func (s *Store) listen(ctx context.Context, instance string, hint func(name string), ready func()) error {
	client, err := s.connection.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	lease, err := client.Grant(ctx, listenTTL)
	if err != nil {
		return err
	}
	defer s.revoke(client, lease.ID)
	key := s.keys.hint(instance)
	put, err := client.Put(ctx, key, "", clientv3.WithLease(lease.ID))
	if err != nil {
		return err
	}
	alive, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return err
	}
	events := client.Watch(ctx, key, clientv3.WithRev(put.Header.Revision+1))
	ready()
	for {
		select {
		case _, ok := <-alive:
			if !ok {
				return errLeaseEnded
			}
		case some, ok := <-events:
			if !ok {
				return errLeaseEnded
			}
			if err := some.Err(); err != nil {
				return err // also when the revision was compacted: tellAll follows
			}
			for _, e := range some.Events {
				switch {
				case e.Type == mvccpb.DELETE:
					return errLeaseEnded
				case len(e.Kv.Value) > 0:
					hint(string(e.Kv.Value))
				}
			}
		}
	}
}

// revoke removes the key, which would expire by itself.
func (s *Store) revoke(client *clientv3.Client, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, _ = client.Revoke(ctx, lease)
}

// hintLater notifies instances for which there was no room in the write.
func (s *Store) hintLater(name string, instances []string) {
	s.start(func() {
		for len(instances) > 0 {
			n := min(len(instances), maxHints)
			var ops []clientv3.Op
			for _, instance := range instances[:n] {
				ops = append(ops, s.keys.hintOp(instance, name))
			}
			if _, err := s.txn(nil, ops, nil); err != nil {
				return // they get it with their next heartbeat
			}
			instances = instances[n:]
		}
	})
}
