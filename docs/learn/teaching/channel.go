package teaching

import "context"

// A Channel is a semaphore whose permits are the places of a buffered channel. Waiters are
// served in order of arrival, by the runtime. It has no weights, and its capacity is fixed.
type Channel chan struct{}

// NewChannel returns a semaphore with n permits, all free.
func NewChannel(n int) Channel { return make(Channel, n) }

// Acquire takes a permit, or returns the cause of a context that ended.
func (s Channel) Acquire(ctx context.Context) error {
	// A select with several ready cases chooses one at random. Without this check, a context
	// that has ended would acquire half of the time.
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release returns a permit. It panics if none is held.
func (s Channel) Release() {
	select {
	case <-s:
	default:
		panic("teaching: more released than acquired")
	}
}
