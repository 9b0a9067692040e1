package sessiontest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A Source is the part of a fleet.Store that notifies listeners.
type Source interface {
	Listen(ctx context.Context, instance string, notify func(name string)) error
}

// Listeners are listening instances, each with a semaphore of its own.
type Listeners struct {
	Members []*Member
	t       testing.TB
	source  Source
	store   Store
	added   int
}

// A Member is one listening instance.
type Member struct {
	group           *Listeners
	semaphore       string
	holder, session *Session
	ticket          protocol.Ticket
	notified        atomic.Int64
	stop            context.CancelFunc
	ended           chan struct{}
	err             error // result of Listen
}

// within is the time in which a notification arrives that is not lost.
const within = 8 * time.Second

// NewListeners starts n listeners of source for changes that store makes. They stop when the
// test ends.
func NewListeners(t testing.TB, source Source, store Store, n int) *Listeners {
	l := &Listeners{t: t, source: source, store: store}
	for range n {
		l.Add()
	}
	t.Cleanup(func() {
		for _, m := range l.Members {
			m.Stop()
		}
	})
	return l
}

// Add starts another listener. Its subscription may not be complete yet: see AwaitSubscribed.
func (l *Listeners) Add() *Member {
	l.t.Helper()
	instance := fmt.Sprintf("%s, %d", Instance(l.t), l.added)
	m := &Member{group: l, semaphore: fmt.Sprintf("of %d", l.added), ended: make(chan struct{})}
	l.added++
	m.holder, m.session = m.open("holder"), m.open(instance)
	var listening context.Context
	listening, m.stop = context.WithCancel(context.Background())
	go func() {
		defer close(m.ended)
		m.err = l.source.Listen(listening, instance, func(name string) {
			if name != m.semaphore {
				l.t.Errorf("listener of %q is notified of %q", m.semaphore, name)
			}
			m.notified.Add(1)
		})
	}()
	l.Members = append(l.Members, m)
	return m
}

func (m *Member) open(instance string) *Session {
	l := m.group
	l.t.Helper()
	id, _, err := l.store.Open(context.Background(), m.semaphore, protocol.Config{Capacity: 1, TTL: 20 * TTL, Protocol: protocol.Version}, Opener(instance))
	if err != nil {
		l.t.Fatal(err)
	}
	return Opened(l.t, l.store, m.semaphore, id)
}

// Stop stops the listener and waits until Listen has returned.
func (m *Member) Stop() {
	m.stop()
	<-m.ended
}

// Notified returns how often the member was notified of its semaphore.
func (m *Member) Notified() int64 { return m.notified.Load() }

// Change grants a permit to the member's session, outside of a reply to that session.
func (m *Member) Change() {
	m.group.t.Helper()
	m.ticket++
	lease := m.holder.Granted(1, Acquire(m.ticket, 1))[0]
	m.session.Send(Acquire(m.ticket, 1))
	m.holder.Send(Release(lease))
}

// Poll receives the grant of the member and releases it.
func (m *Member) Poll() {
	m.group.t.Helper()
	m.session.Send(Release(m.session.Granted(1)[0]))
}

// AwaitSubscribed makes changes until each member was notified: a subscription takes some time,
// and nothing reports when it is complete.
func (l *Listeners) AwaitSubscribed() {
	l.t.Helper()
	for _, m := range l.Members {
		m.awaitSubscribed()
	}
	time.Sleep(50 * time.Millisecond) // for duplicate notifications
}

func (m *Member) awaitSubscribed() {
	m.group.t.Helper()
	before, deadline := m.Notified(), time.Now().Add(within)
	for {
		m.Change()
		notified := m.awaitNotified(before, 50*time.Millisecond)
		m.Poll()
		switch {
		case notified:
			return
		case time.Now().After(deadline):
			m.group.t.Fatalf("listener of %q receives no notification", m.semaphore)
		}
	}
}

// WantNotified makes a change for each member, and fails unless each is notified soon.
func (l *Listeners) WantNotified() {
	l.t.Helper()
	before := make([]int64, len(l.Members))
	for i, m := range l.Members {
		before[i] = m.Notified()
		m.Change()
	}
	for i, m := range l.Members {
		if !m.awaitNotified(before[i], within) {
			l.t.Fatalf("listener of %q is not notified of its grant", m.semaphore)
		}
		m.Poll()
	}
}

func (m *Member) awaitNotified(before int64, within time.Duration) bool {
	for deadline := time.Now().Add(within); m.Notified() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// WantEnd fails unless Listen returns for all members, with that error.
func (l *Listeners) WantEnd(reason error) {
	l.t.Helper()
	late := time.After(within)
	for _, m := range l.Members {
		select {
		case <-m.ended:
		case <-late:
			l.t.Fatal("a member still listens")
		}
		if !errors.Is(m.err, reason) {
			l.t.Fatalf("listening ended with %v, want %v", m.err, reason)
		}
	}
}
