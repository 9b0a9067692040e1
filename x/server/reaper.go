package server

import "time"

// reapEvery is how often the server looks for sessions that have expired.
const reapEvery = time.Second

// reap makes the store end sessions of Go clients that have not sent a batch for a
// TTL, until the server is closed. Stores inside the process end them by themselves;
// over Redis, PostgreSQL and etcd the clock of a semaphore stands still until a client
// asks, and what the session held would be rejected to that one. (The lease manager does the
// same for leases over HTTP.)
func (s *service) reap() {
	for {
		select {
		case <-s.life.Done():
			return
		case now := <-time.After(reapEvery):
			for semaphore, ttl := range s.sessions.overdue(now) {
				s.manager.Poll(semaphore, ttl)
			}
		}
	}
}

// overdue returns the semaphores with sessions that have newly expired, and their TTLs.
func (p *sessions) overdue(now time.Time) map[string]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found map[string]time.Duration
	for key, one := range p.all {
		if !one.tryLock() { // a batch of it is being applied
			continue
		}
		late := now.Sub(one.seen) > one.ttl
		if late && !one.overdue {
			if found == nil {
				found = map[string]time.Duration{}
			}
			found[key.semaphore] = max(found[key.semaphore], one.ttl)
		}
		one.overdue = late
		one.unlock()
	}
	return found
}
