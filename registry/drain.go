package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
)

// Drain drains the limits for a shutdown: callers, waiting ones included, get
// [sema.ErrDraining], and Drain waits until all permits are released. If ctx ends first, the
// error names each limit that still has holders, with how many, and where they acquired if
// diagnostics are on.
//
// All limits are drained at once, except that those named in first are drained before the
// others. Name the limits at which work enters the program, such as "http": then requests in
// progress can still acquire what they need to finish. If ctx ends while the first are
// drained, the others are drained all the same, without waiting.
//
// Limits that are registered later are drained from the start. A drained registry stays
// drained; single gates can be resumed.
//
// Drain leaves alone the gates that other processes use as well, those of packages host and
// fleet: their own Drain would stop all of these processes. Close them after Drain.
func (r *Registry) Drain(ctx context.Context, first ...string) error {
	if ctx == nil {
		return &sema.Error{Op: "drain", Err: sema.ErrInvalid, Detail: "nil context"}
	}
	fault := &drainError{}
	r.mu.Lock()
	var early []*entry
	for _, name := range first {
		if e := r.entries[name]; e == nil {
			fault.add(fmt.Errorf("%q: no such limit, so it was not drained first: %w", name, sema.ErrInvalid))
		} else if !slices.Contains(early, e) {
			early = append(early, e)
		}
	}
	r.mu.Unlock()
	drainAll(ctx, early, fault)

	r.mu.Lock()
	r.draining = true
	var late []*entry
	for _, e := range r.entries {
		if !slices.Contains(early, e) {
			late = append(late, e)
		}
	}
	r.mu.Unlock()
	drainAll(ctx, late, fault)
	if len(fault.errs) == 0 {
		return nil
	}
	slices.SortFunc(fault.errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return fault
}

// drainAll drains the entries in parallel and adds the errors.
func drainAll(ctx context.Context, entries []*entry, fault *drainError) {
	var all sync.WaitGroup
	for _, e := range entries {
		if !e.gate.drainsAlone() {
			continue
		}
		all.Go(func() {
			if err := e.drain(ctx); err != nil {
				fault.add(e.drainFault(err))
			}
		})
	}
	all.Wait()
}

// drainGrace is how long a gate may take to return from Drain after its context has ended.
const drainGrace = time.Second

// drain drains the gate. It does not wait for a gate that ignores the end of its context,
// such as one of the user: a shutdown would hang.
func (e *entry) drain(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- e.gate.drains.Drain(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(drainGrace):
		return fmt.Errorf("its method Drain did not return when the context ended: %w", context.Cause(ctx))
	}
}

// drainFault returns the error of a drain with what is known about the holders.
func (e *entry) drainFault(err error) error {
	const most = 3
	var text strings.Builder
	fmt.Fprintf(&text, "%q (%s): ", e.name, e.why)
	var fault *sema.Error
	if errors.As(err, &fault) && fault.Detail != "" {
		text.WriteString(fault.Detail)
	} else {
		text.WriteString(err.Error())
	}
	for i, h := range e.gate.holders(sema.Holders()) {
		if i == most {
			text.WriteString(", …")
			break
		}
		fmt.Fprintf(&text, ", %d at %s for %v", h.Weight, h.Site, h.Age.Round(time.Millisecond))
	}
	return &notDrained{text.String(), err}
}

// holders returns those of all holders that hold permits of the gate.
func (g *gate) holders(all []sema.Holder) (list []sema.Holder) {
	for _, h := range all {
		if g.name != "" && h.Name == g.name {
			list = append(list, h)
		}
	}
	return list
}

// notDrained is the error of one limit.
type notDrained struct {
	text string
	err  error
}

// Error implements error.
func (e *notDrained) Error() string { return e.text }

// Unwrap returns the error of the gate.
func (e *notDrained) Unwrap() error { return e.err }

// A drainError lists the limits that were not drained.
type drainError struct {
	mu   sync.Mutex
	errs []error
}

func (e *drainError) add(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.errs = append(e.errs, err)
}

// Error returns a line for each limit.
func (e *drainError) Error() string {
	text := "registry: drain: not finished"
	for _, err := range e.errs {
		text += "\n\t" + err.Error()
	}
	return text
}

// Unwrap returns the errors of the limits.
func (e *drainError) Unwrap() []error { return e.errs }

// Hint returns advice, for [sema.Hint].
func (*drainError) Hint() string {
	return "look for permits that are held too long: SEMA_DEBUG=full shows where they were acquired"
}
