package sema_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/sema-go/sema"
)

type opKind uint8

const (
	opAcquire opKind = iota
	opTry
	opTryAll
	opRequest
	opRelease
	opReleaseTwice
	opCancel
	opSplit
	opForget
	opResize
	opDrain
	opResume
	opClose
	opWaitIdle
	opKinds
)

// An op is a kind with two numbers, which each kind interprets in its own way.
type op struct {
	Kind opKind
	A, B uint8
}

func (o op) String() string {
	return fmt.Sprintf("%s(%d,%d)", [...]string{"acquire", "try", "tryAll", "request", "release", "releaseTwice",
		"cancel", "split", "forget", "resize", "drain", "resume", "close", "waitIdle"}[o.Kind], o.A, o.B)
}

type model struct {
	modelOptions
	now      time.Duration // since the start
	inUse    int64
	counts   sema.Counts
	draining bool
	closed   bool
	calls    []*call
	queue    []*call
	longest  int // greatest length of the queue so far
}

// advance moves the clock by d. Waits may time out meanwhile.
func (m *model) advance(d time.Duration) {
	for until := m.now + d; m.now < until; {
		next := until
		var late *call
		for _, c := range m.queue {
			if at := c.since + m.maxWait; m.maxWait > 0 && at <= next {
				next, late = at, c
			}
		}
		m.counts.WaitTime += time.Duration(len(m.queue)) * (next - m.now)
		m.now = next
		if late != nil {
			m.counts.TimedOut++
			m.end(late, sema.ErrTimeout)
			m.settle()
		}
	}
}

func (m *model) free() int64 { return max(0, m.capacity-m.inUse) }

func (m *model) oversize(n int64) bool {
	return m.capacity > 0 && n > m.capacity || m.striped && n > 1
}

func (m *model) rejection(n int64, park bool) error {
	switch {
	case m.closed:
		return sema.ErrClosed
	case m.draining:
		return sema.ErrDraining
	case n > 0 && m.oversize(n) && !park:
		return sema.ErrTooLarge
	}
	return nil
}

func (m *model) mustQueue() bool {
	servable := slices.ContainsFunc(m.queue, func(c *call) bool { return !m.oversize(c.n) })
	return servable && m.order == sema.Option(sema.Fair)
}

func (m *model) acquire(n int64, wait bool) *call {
	c := &call{n: n}
	m.calls = append(m.calls, c)
	switch err := m.rejection(n, m.park && wait); {
	case err != nil:
		m.counts.Rejected++
		c.err = err
	case n == 0:
	case !m.oversize(n) && !m.mustQueue() && m.capacity-m.inUse >= n:
		m.grant(c)
	case !wait:
		m.counts.Rejected++
		c.err = sema.ErrFull
	case m.maxWaiters > 0 && len(m.queue) >= m.maxWaiters:
		m.counts.Rejected++
		c.err = sema.ErrQueueFull
	default:
		m.counts.Waited++
		c.waiting, c.since = true, m.now
		if m.order == sema.Option(sema.LIFO) {
			m.queue = slices.Insert(m.queue, 0, c)
		} else {
			m.queue = append(m.queue, c)
		}
	}
	return c
}

func (m *model) end(c *call, err error) {
	c.waiting, c.err = false, err
	m.queue = slices.DeleteFunc(m.queue, func(o *call) bool { return o == c })
}

// settle rejects calls that cannot fit any more and serves the queue.
func (m *model) settle() {
	for _, c := range slices.Clone(m.queue) {
		if err := m.rejection(c.n, m.park); err != nil {
			m.counts.Rejected++
			m.end(c, err)
		}
	}
	for _, c := range slices.Clone(m.queue) {
		if m.oversize(c.n) {
			continue
		}
		if m.capacity-m.inUse < c.n {
			return
		}
		m.end(c, nil)
		m.grant(c)
	}
}

func (m *model) grant(c *call) {
	m.inUse += c.n
	m.counts.Acquired++
	c.held = true
}

func (m *model) release(c *call) {
	if c.held {
		c.held = false
		m.inUse -= c.n
		m.settle()
	}
}
