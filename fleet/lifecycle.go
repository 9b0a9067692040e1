package fleet

import "context"

// Resize sets the capacity for all clients of the semaphore, like [Client.Resize].
func (s *Semaphore) Resize(ctx context.Context, capacity int64) error {
	return s.changed(s.client.Resize(ctx, s.name, capacity))
}

// Drain drains the semaphore for all its clients, like [Client.Drain].
func (s *Semaphore) Drain(ctx context.Context) error {
	return s.changed(s.client.Drain(ctx, s.name))
}

// Resume ends a drain, like [Client.Resume].
func (s *Semaphore) Resume(ctx context.Context) error {
	return s.changed(s.client.Resume(ctx, s.name))
}

// changed polls the new configuration after a change, and returns err.
func (s *Semaphore) changed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.pollLocked()
	}
	return err
}
