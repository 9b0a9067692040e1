package leasing

import (
	"context"
	"time"
)

// Poll inspects a semaphore every TTL/6, for at most two TTLs, until the store can decide
// whether all permits in use are held. Some stores do not expire sessions by themselves:
// there the semaphore's clock would stand still until the next request, which would then be
// rejected, too. A semaphore is polled once, however many requests there are.
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
		_, _ = m.store.Inspect(ctx, semaphore) // advances the semaphore's clock
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
