package leasing

import (
	"errors"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/list"
)

// A queue has the local waiters of a semaphore, about in the order in which the store will
// serve them. Many may come at the same time, so that it may differ from the store's. It
// decides which sessions are woken by a notification, which does not name any.
type queue struct {
	list.List[*session]
	reordering bool          // it is about to be compared with the store's
	took       time.Duration // to read the store's the last time
}

// How many waiters are woken by a notification of the store, and by a grant, since one
// notification may be about several.
const (
	wokenByNotification = 2
	wokenByGrant        = 1
)

// A notification may be about a waiter that is not woken by it. The queue is compared with
// the store's this long after it, and so seldom that this takes a small part of the store's
// time, however long the queue is.
const (
	reorderAfter = 30 * time.Millisecond
	reorderShare = 20
)

// enqueue adds a session at the end of the queue.
func (m *Manager) enqueue(one *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues[one.semaphore] == nil {
		m.queues[one.semaphore] = &queue{}
	}
	m.queues[one.semaphore].PushBack(&one.node)
}

func (m *Manager) dequeue(one *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.queues[one.semaphore]
	l.Remove(&one.node)
	if l.Len() == 0 {
		delete(m.queues, one.semaphore)
	}
}

// listen receives the notifications of the store.
func (m *Manager) listen() {
	for m.life.Err() == nil {
		err := m.store.Listen(m.life, m.self.Instance, m.notified)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		select {
		case <-m.life.Done():
		case <-time.After(jittered(time.Second)):
		}
	}
}

// notified wakes waiters of a semaphore after a notification.
func (m *Manager) notified(semaphore string) {
	m.wake(semaphore, wokenByNotification)
	m.mu.Lock()
	l := m.queues[semaphore]
	if l == nil || l.reordering || l.Len() <= wokenByNotification { // all are awake
		m.mu.Unlock()
		return
	}
	l.reordering = true
	after := max(reorderAfter, reorderShare*l.took)
	m.mu.Unlock()
	m.start(func() { m.reorder(semaphore, l, after) })
}

// wake makes the first sessions of a queue ask for results.
func (m *Manager) wake(semaphore string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.queues[semaphore]; l != nil {
		for node := l.First(); node != nil && n > 0; node, n = node.Next(), n-1 {
			node.Of.signal()
		}
	}
}

// signal makes a session ask for results, unless it is about to.
func (s *session) signal() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

// reorder gives a queue the order of the store, and wakes all whose wait has ended.
func (m *Manager) reorder(semaphore string, l *queue, after time.Duration) {
	select {
	case <-m.life.Done():
		return
	case <-time.After(after):
	}
	m.mu.Lock()
	l.reordering = false // a notification from now on may be about a waiter that is not in the snapshot
	m.mu.Unlock()
	start := time.Now()
	snapshot, err := m.inspect(m.life, semaphore)
	if err != nil {
		return // all send heartbeats
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.took = time.Since(start)
	l.arrange(snapshot.Queue)
}

// arrange puts those first that are not in the store's queue: they have results, or have not
// arrived there yet.
func (l *queue) arrange(stored []protocol.TicketInfo) {
	places := make(map[protocol.Session]int, len(stored))
	for i, t := range stored {
		places[t.Session] = i + 1
	}
	all := slices.Collect(l.All)
	slices.SortStableFunc(all, func(a, b *session) int { return places[a.number] - places[b.number] })
	for _, one := range all {
		l.Remove(&one.node)
		l.PushBack(&one.node)
		if places[one.number] == 0 {
			one.signal()
		}
	}
}
