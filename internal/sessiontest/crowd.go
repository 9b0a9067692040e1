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

// A Listener is what those who listen need of a fleet.Store.
type Listener interface {
	Listen(ctx context.Context, instance string, hint func(name string)) error
}

// A Crowd is instances that listen, each of which has a semaphore of its own.
type Crowd struct {
	Members []*Member
	t       testing.TB
	ear     Listener
	store   Store
	joined  int
}

// A Member is one of them.
type Member struct {
	crowd           *Crowd
	semaphore       string
	holder, session *Session
	ticket          protocol.Ticket
	told            atomic.Int64
	leave           context.CancelFunc
	ended           chan struct{}
	err             error // with which it ended
}

// within is how soon a hint comes that is not lost.
const within = 8 * time.Second

// NewCrowd has n listen by ear, until the test ends, to what a store does.
func NewCrowd(t testing.TB, ear Listener, store Store, n int) *Crowd {
	c := &Crowd{t: t, ear: ear, store: store}
	for range n {
		c.Join()
	}
	t.Cleanup(func() {
		for _, m := range c.Members {
			m.Leave()
		}
	})
	return c
}

// Join is one more, who may not be heard of yet: see Settle.
func (c *Crowd) Join() *Member {
	c.t.Helper()
	instance := fmt.Sprintf("%s, %d", Instance(c.t), c.joined)
	m := &Member{crowd: c, semaphore: fmt.Sprintf("of %d", c.joined), ended: make(chan struct{})}
	c.joined++
	m.holder, m.session = m.open("holder"), m.open(instance)
	var listening context.Context
	listening, m.leave = context.WithCancel(context.Background())
	go func() {
		defer close(m.ended)
		m.err = c.ear.Listen(listening, instance, func(name string) {
			if name != m.semaphore {
				c.t.Errorf("who waits for %q is told of %q", m.semaphore, name)
			}
			m.told.Add(1)
		})
	}()
	c.Members = append(c.Members, m)
	return m
}

func (m *Member) open(instance string) *Session {
	c := m.crowd
	c.t.Helper()
	id, _, err := c.store.Open(context.Background(), m.semaphore, protocol.Config{Capacity: 1, TTL: 20 * TTL, Protocol: protocol.Version}, Opener(instance))
	if err != nil {
		c.t.Fatal(err)
	}
	return Opened(c.t, c.store, m.semaphore, id)
}

// Leave has a member listen no more.
func (m *Member) Leave() {
	m.leave()
	<-m.ended
}

// Told is how often a member was told of its semaphore.
func (m *Member) Told() int64 { return m.told.Load() }

// GiveNews has a member's turn come, while it is not there to be answered.
func (m *Member) GiveNews() {
	m.crowd.t.Helper()
	m.ticket++
	lease := m.holder.Granted(1, Acquire(m.ticket, 1))[0]
	m.session.Say(Acquire(m.ticket, 1))
	m.holder.Say(Release(lease))
}

// TakeNews is when a member is answered.
func (m *Member) TakeNews() {
	m.crowd.t.Helper()
	m.session.Say(Release(m.session.Granted(1)[0]))
}

// Settle gives news until all members have been told: to subscribe takes some time,
// of which nothing tells the end.
func (c *Crowd) Settle() {
	c.t.Helper()
	for _, m := range c.Members {
		m.settle()
	}
	time.Sleep(50 * time.Millisecond) // for hints that come twice
}

func (m *Member) settle() {
	m.crowd.t.Helper()
	before, deadline := m.Told(), time.Now().Add(within)
	for {
		m.GiveNews()
		told := m.awaitTold(before, 50*time.Millisecond)
		m.TakeNews()
		switch {
		case told:
			return
		case time.Now().After(deadline):
			m.crowd.t.Fatalf("who waits for %q is not told of anything", m.semaphore)
		}
	}
}

// WantTold gives each member news, and wants it told soon.
func (c *Crowd) WantTold() {
	c.t.Helper()
	before := make([]int64, len(c.Members))
	for i, m := range c.Members {
		before[i] = m.Told()
		m.GiveNews()
	}
	for i, m := range c.Members {
		if !m.awaitTold(before[i], within) {
			c.t.Fatalf("who waits for %q is not told that its turn has come", m.semaphore)
		}
		m.TakeNews()
	}
}

func (m *Member) awaitTold(before int64, within time.Duration) bool {
	for deadline := time.Now().Add(within); m.Told() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// WantEnd wants all members to listen no more, and for that reason.
func (c *Crowd) WantEnd(reason error) {
	c.t.Helper()
	late := time.After(within)
	for _, m := range c.Members {
		select {
		case <-m.ended:
		case <-late:
			c.t.Fatal("somebody still listens")
		}
		if !errors.Is(m.err, reason) {
			c.t.Fatalf("listening ended with %v, want %v", m.err, reason)
		}
	}
}
