package leasing

import (
	"context"
	"time"
)

// Poll asks the store about a semaphore every sixth of a TTL, for two TTLs at most, until it
// can decide whether all that is in use is held. Over a store that does not expire sessions by
// itself, the semaphore's clock would stand still until the next request, which would be
// rejected as well. However many requests there are, a semaphore is polled once.
func (m *Manager) Poll(semaphore string, ttl time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pollLocked(semaphore, ttl)
}

func (m *Manager) pollLocked(semaphore string, ttl time.Duration) {
	_, polled := m.polls[semaphore]
	m.polls[semaphore] = time.Now().Add(2 * ttl)
	if !polled && m.life.Err() == nil {
		m.running.Go(func() { m.pollUntilDecided(semaphore, ttl) })
	}
}

func (m *Manager) pollUntilDecided(semaphore string, ttl time.Duration) {
	for {
		select {
		case <-m.life.Done():
			return
		case <-time.After(ttl / 6):
		}
		ctx, cancel := context.WithTimeout(m.life, storeTimeout)
		_, _ = m.store.Inspect(ctx, semaphore) // which moves the semaphore's clock on
		cancel()
		m.mu.Lock()
		over := time.Now().After(m.polls[semaphore])
		if over {
			delete(m.polls, semaphore)
		}
		m.mu.Unlock()
		if over {
			return
		}
	}
}
