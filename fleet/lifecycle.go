package fleet

import "context"

// Resize sets the capacity for all clients of the semaphore, as [Client.Resize].
func (s *Semaphore) Resize(ctx context.Context, capacity int64) error {
	return s.changed(s.client.Resize(ctx, s.name, capacity))
}

// Drain drains the semaphore for all its clients, as [Client.Drain].
func (s *Semaphore) Drain(ctx context.Context) error {
	return s.changed(s.client.Drain(ctx, s.name))
}

// Resume ends what Drain began, as [Client.Resume].
func (s *Semaphore) Resume(ctx context.Context) error {
	return s.changed(s.client.Resume(ctx, s.name))
}

// changed makes the driver ask for the new configuration.
func (s *Semaphore) changed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.poll()
	}
	return err
}
