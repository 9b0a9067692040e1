package etcdstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// listenTTL is the TTL of the key of a listening instance, in seconds.
const listenTTL = 30

// Listen implements [fleet.Store]. An instance that listens has a key, under a lease of
// etcd. A process with results for the instance puts the semaphore's name there in the
// same write, unless the key is missing: then no process listens. So a grant costs one
// message, however many sessions wait. Listen starts over after any failure.
func (s *Store) Listen(ctx context.Context, instance string, notify func(name string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.life, func() { cancel(s.fault(errClosed)) })()
	for pause, again := firstPause, false; ; again = true {
		began := time.Now()
		_ = s.listen(ctx, instance, func(name string) {
			s.noteNotification(name)
			notify(name)
		}, func() {
			if again {
				s.notifyAll(notify)
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

// notifyAll notifies of all semaphores, when notifications may have been missed.
func (s *Store) notifyAll(notify func(name string)) {
	s.mu.Lock()
	var names []string
	for name := range s.semaphores {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		notify(name)
	}
}

// noteNotification makes the worker of a semaphore read before it writes.
func (s *Store) noteNotification(name string) {
	s.mu.Lock()
	found := s.semaphores[name]
	s.mu.Unlock()
	if found != nil {
		found.noteWrite()
	}
}

var errLeaseEnded = errors.New("the lease on the key for notifications has ended")

// listen creates the key of the instance and calls notify with each name that is put
// there, until it fails. It calls ready once no notification can be missed any more.
func (s *Store) listen(ctx context.Context, instance string, notify func(name string), ready func()) error {
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
	key := s.keys.notify(instance)
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
				return err // also when the revision was compacted: notifyAll follows
			}
			for _, e := range some.Events {
				switch {
				case e.Type == mvccpb.DELETE:
					return errLeaseEnded
				case len(e.Kv.Value) > 0:
					notify(string(e.Kv.Value))
				}
			}
		}
	}
}

// revoke removes the key of the instance at once. Otherwise the key would expire later.
func (s *Store) revoke(client *clientv3.Client, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, _ = client.Revoke(ctx, lease)
}

// notifyLater notifies the instances that did not fit into the write.
func (s *Store) notifyLater(name string, instances []string) {
	s.start(func() {
		for len(instances) > 0 {
			n := min(len(instances), maxNotifications)
			var ops []clientv3.Op
			for _, instance := range instances[:n] {
				ops = append(ops, s.keys.notifyOp(instance, name))
			}
			if _, err := s.txn(nil, ops, nil); err != nil {
				return // they receive the results with their next heartbeat
			}
			instances = instances[n:]
		}
	})
}
