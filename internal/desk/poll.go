package desk

import (
	"context"
	"time"
)

// Poll asks the store about a semaphore every sixth of a TTL, for two TTLs at most,
// until it can decide whether all that is in use is held. Over a store that does not
// look by itself the semaphore's clock would stand still until the next request, and
// that would be rejected as well. However many requests there are, a semaphore is
// polled once.
func (d *Desk) Poll(semaphore string, ttl time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pollLocked(semaphore, ttl)
}

func (d *Desk) pollLocked(semaphore string, ttl time.Duration) {
	_, polled := d.polls[semaphore]
	d.polls[semaphore] = time.Now().Add(2 * ttl)
	if !polled && d.life.Err() == nil {
		d.running.Go(func() { d.pollUntilDecided(semaphore, ttl) })
	}
}

func (d *Desk) pollUntilDecided(semaphore string, ttl time.Duration) {
	for {
		select {
		case <-d.life.Done():
			return
		case <-time.After(ttl / 6):
		}
		ctx, cancel := context.WithTimeout(d.life, patience)
		_, _ = d.store.Inspect(ctx, semaphore) // which moves the semaphore's clock on
		cancel()
		d.mu.Lock()
		over := time.Now().After(d.polls[semaphore])
		if over {
			delete(d.polls, semaphore)
		}
		d.mu.Unlock()
		if over {
			return
		}
	}
}
