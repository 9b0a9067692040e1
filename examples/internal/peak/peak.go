// Package peak measures how much of something is in use at once. The examples check with
// it what their gates bound, apart from the gates.
package peak

import "sync"

// A Meter records what is in use, and the most that ever was. The zero Meter is ready to
// use. It is safe for concurrent use.
type Meter struct {
	mu        sync.Mutex
	now, most int64
}

// Add adds n to what is in use. A negative n subtracts.
func (m *Meter) Add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now += n
	m.most = max(m.most, m.now)
}

// Most returns the most that was in use at once.
func (m *Meter) Most() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most
}
