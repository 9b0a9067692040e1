package leasing

import (
	"errors"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/list"
)

// A queue contains the local waiters of a semaphore, approximately in the order of the store's
// queue. The order may differ for concurrent requests. It decides which sessions a
// notification wakes, since a notification names only the semaphore.
type queue struct {
	list.List[*session]
	reordering  bool          // a comparison with the store's queue is scheduled
	inspectTime time.Duration // duration of the last inspection
}

// How many waiters a notification wakes, and how many a grant wakes, since one notification
// may be about several waiters.
const (
	wokenByNotification = 2
	wokenByGrant        = 1
)

// A notification may be about a waiter that it does not wake. So the queue is compared with
// the store's this long after it. Comparisons take at most 1/reorderShare of the time,
// however long the queue is.
const (
	reorderAfter = 30 * time.Millisecond
	reorderShare = 20
)

// enqueue adds a session to the end of the queue.
func (m *Manager) enqueue(sess *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues[sess.semaphore] == nil {
		m.queues[sess.semaphore] = &queue{}
	}
	m.queues[sess.semaphore].PushBack(&sess.node)
}

func (m *Manager) dequeue(sess *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.queues[sess.semaphore]
	l.Remove(&sess.node)
	if l.Len() == 0 {
		delete(m.queues, sess.semaphore)
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

// notified wakes waiters of a semaphore after a notification, and schedules a comparison.
func (m *Manager) notified(semaphore string) {
	m.wake(semaphore, wokenByNotification)
	m.mu.Lock()
	l := m.queues[semaphore]
	if l == nil || l.reordering || l.Len() <= wokenByNotification { // all are woken
		m.mu.Unlock()
		return
	}
	l.reordering = true
	after := max(reorderAfter, reorderShare*l.inspectTime)
	m.mu.Unlock()
	m.start(func() { m.reorder(semaphore, l, after) })
}

// wake makes the first n sessions of a queue poll for results.
func (m *Manager) wake(semaphore string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.queues[semaphore]; l != nil {
		for node := l.First(); node != nil && n > 0; node, n = node.Next(), n-1 {
			node.Of.signal()
		}
	}
}

// signal makes a session poll for results, unless it is about to.
func (s *session) signal() {
	select {
	case s.wakeups <- struct{}{}:
	default:
	}
}

// reorder sorts a queue like the store's, and wakes all sessions whose wait has ended.
func (m *Manager) reorder(semaphore string, l *queue, after time.Duration) {
	select {
	case <-m.life.Done():
		return
	case <-time.After(after):
	}
	m.mu.Lock()
	l.reordering = false // a later notification may be about a waiter that is not in the snapshot
	m.mu.Unlock()
	start := time.Now()
	snapshot, err := m.inspect(m.life, semaphore)
	if err != nil {
		return // heartbeats make up for it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.inspectTime = time.Since(start)
	l.arrangeLocked(snapshot.Queue)
}

// arrangeLocked sorts the queue in the order of the store's queue. It wakes the sessions that
// are not in the store's queue, and puts them first: they have results, or are not queued
// there yet.
func (l *queue) arrangeLocked(stored []protocol.TicketInfo) {
	places := make(map[protocol.Session]int, len(stored))
	for i, t := range stored {
		places[t.Session] = i + 1
	}
	all := slices.Collect(l.All)
	slices.SortStableFunc(all, func(a, b *session) int { return places[a.number] - places[b.number] })
	for _, sess := range all {
		l.Remove(&sess.node)
		l.PushBack(&sess.node)
		if places[sess.number] == 0 {
			sess.signal()
		}
	}
}
