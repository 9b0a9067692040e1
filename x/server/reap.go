package server

import "time"

// reapEvery is the interval at which the server checks for expired sessions.
const reapEvery = time.Second

// reap makes the store end sessions of Go clients that have not sent a batch for a TTL, until
// the server is closed. In-process stores end such sessions by themselves. Over Redis,
// PostgreSQL and etcd, a semaphore's clock advances only with requests: the next request would
// be rejected because of the permits that the session held. (The lease manager does the same
// for leases over HTTP.)
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

// overdue returns the semaphores with newly expired sessions, and their TTLs.
func (p *sessions) overdue(now time.Time) map[string]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found map[string]time.Duration
	for key, one := range p.all {
		if !one.tryLock() { // a batch is being applied
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
