package server

import (
	"context"
	"sync"
)

// A caller is an identity at an address.
type caller struct {
	*identity
	account *account // of its principal; nil outside of a request
	from    string
	journal *journal // of denials; nil outside of a request
}

// allow fails if the caller may not do that, and logs it.
func (c caller) allow(verb Verb, semaphore string) error {
	err := c.identity.allow(verb, semaphore)
	if err != nil && c.journal != nil {
		c.journal.warn("denied", "request denied", "principal", c.principal, "from", c.from, "verb", string(verb), "semaphore", semaphore)
	}
	return err
}

// A call is a request in progress: its caller, and what it has reserved until its
// response is sent.
type call struct {
	caller

	mu    sync.Mutex
	atEnd []func()
}

type callKey struct{}

// in returns the context of the call.
func (c *call) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// ended releases what the call has reserved.
func (c *call) ended() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, release := range c.atEnd {
		release()
	}
	c.atEnd = nil
}

// who returns the caller of a context's call.
func who(ctx context.Context) caller {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.caller
	}
	return caller{identity: everybody}
}

// accountOf returns the account of the caller of a context's call.
func (s *service) accountOf(ctx context.Context) *account {
	c := who(ctx)
	if c.account != nil {
		return c.account
	}
	return s.accounts.of(c.principal)
}

// reading waits for the caller's turn to read a snapshot or a list, which it keeps until
// the response is sent. Replies that may be large weigh more.
func (s *service) reading(ctx context.Context, weight int64) error {
	done, err := s.accounts.read(ctx, weight)
	if err != nil {
		return err
	}
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		done()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atEnd = append(c.atEnd, done)
	return nil
}

// sending calls send when it is the caller's turn to read: what a stream sends is in
// memory until its client has read it. It reports whether the stream goes on.
func (s *service) sending(ctx context.Context, send func() bool) bool {
	for {
		done, err := s.accounts.read(ctx, 1)
		switch {
		case err == nil:
			defer done()
			return send()
		case ctx.Err() != nil:
			return false
		}
	}
}
