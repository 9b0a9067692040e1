package pool

import (
	"context"
	"sync/atomic"
)

// A gateContext is the context of a caller that waits at a gate. It ends with the caller's
// context, or when the pool is drained or closed. A gate that need not wait reads no more
// than Err; so the two contexts are merged only when Done is called.
type gateContext struct {
	context.Context                 // the caller's
	admits          context.Context // ends when the pool rejects callers
	merged          atomic.Pointer[mergedContext]
}

type mergedContext struct {
	context.Context
	cancel context.CancelCauseFunc
	stop   func() bool
}

// current returns the merged context if there is one, and otherwise the caller's.
func (c *gateContext) current() context.Context {
	if m := c.merged.Load(); m != nil {
		return m
	}
	return c.Context
}

// Done implements [context.Context].
func (c *gateContext) Done() <-chan struct{} {
	if m := c.merged.Load(); m != nil {
		return m.Done()
	}
	m := new(mergedContext)
	m.Context, m.cancel = context.WithCancelCause(c.Context)
	m.stop = context.AfterFunc(c.admits, func() { m.cancel(context.Cause(c.admits)) })
	if !c.merged.CompareAndSwap(nil, m) {
		m.end()
	}
	return c.merged.Load().Done()
}

// Err implements [context.Context].
func (c *gateContext) Err() error { return c.current().Err() }

// Value implements [context.Context]. [context.Cause] calls it.
func (c *gateContext) Value(key any) any { return c.current().Value(key) }

func (m *mergedContext) end() {
	m.stop()
	m.cancel(context.Canceled)
}

// stop ends the wait.
func (c *gateContext) stop() {
	if m := c.merged.Load(); m != nil {
		m.end()
	}
}
