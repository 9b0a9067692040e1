// Package scope gives the commands of sema one interface to the semaphores of this machine
// (package host) and of many machines (package fleet). It contains only what the command line
// needs: programs use host and fleet directly.
package scope

import (
	"context"
	"os/exec"
	"slices"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A Scope contains the semaphores of a store. An operation that it does not support fails with
// [errors.ErrUnsupported], and a hint about what to do instead.
type Scope interface {
	// Semaphore opens a semaphore to acquire permits from.
	Semaphore(ctx context.Context, w Want) (Semaphore, error)

	// Names returns the sorted names that begin with a prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// List returns the semaphores whose names begin with a prefix, sorted by name.
	List(ctx context.Context, prefix string, p Page) (Listing, error)
	Inspect(ctx context.Context, name string) (State, error)
	// Measure sets the Times of states whose names begin with a prefix, as far as they are known.
	Measure(ctx context.Context, prefix string, states []State)
	// Advise returns what the measurements of a semaphore mean for its capacity.
	Advise(ctx context.Context, name string) (Advice, error)
	// Now returns the current time on the clock of a State's times.
	Now(ctx context.Context) time.Time

	Configure(ctx context.Context, name string, c Change) error
	// Drain rejects waiters and new acquires, and waits until no permit is held.
	Drain(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
	Delete(ctx context.Context, name string) error
	Revoke(ctx context.Context, name string, r Revocation) error

	// Host reports whether the scope is this machine only.
	Host() bool
	Close(ctx context.Context) error
}

// A Want describes the permits that a command acquires.
type Want struct {
	Name     string
	Capacity int64                    // 0: the stored one, or 1 for a new semaphore
	Numbered bool                     // permits have numbers; fixed when the semaphore is created
	TTL      time.Duration            // 0: the stored one, or [DefaultTTL] for a new semaphore
	Wait     time.Duration            // 0: do not wait; negative: no limit
	Command  string                   // the program that runs under the permit, without its arguments, which may be secret
	About    string                   // the user's description; "": none
	Warn     func(facts, hint string) // called if the stored configuration differs; hint may be empty
}

// A Semaphore grants the permits of a command.
type Semaphore interface {
	// Acquire waits as specified by Want.Wait. It fails with ErrTimeout after that, and with
	// ErrFull if it does not wait.
	Acquire(ctx context.Context, weight int64) (Hold, error)
	// Standing returns the state with the position of this process in the queue.
	Standing(ctx context.Context) (Standing, error)
}

// A Standing is the state of a semaphore and the position of this process in its queue.
type Standing struct {
	State
	Position int  // starts at 1; 0: unknown
	AtMost   bool // the position may be lower than Position
}

// A Hold is an acquired permit.
type Hold interface {
	// Slots returns the numbers of the permits, nil if the semaphore is not numbered.
	Slots() []int64
	// Environment returns variables for the command, as in [exec.Cmd].
	Environment() []string
	// Attach prepares the command, which is not started yet, for the case that this process
	// is killed.
	Attach(cmd *exec.Cmd) error
	// Lost returns a channel that is closed when another holder may get the permit, or nil if
	// that cannot happen.
	Lost() <-chan struct{}
	// Err returns nil while the permit is held. It compares the clock with the end of the lease.
	Err() error
	// Left returns how long the permit is held without a further renewal. expires is false if
	// the permit does not expire.
	Left() (left time.Duration, expires bool)
	// Deadline returns when a command that has lost its permit must have ended: another holder
	// may be admitted soon after.
	Deadline() time.Time
	// Release releases the permit, and returns when the store has confirmed that.
	Release(ctx context.Context) error
}

// A Change contains the settings to change. Nil fields stay unchanged.
type Change struct {
	Capacity, Ramp *int64
	MaxWaiters     *MaxWaiters
	Draining       *bool
}

// A Revocation revokes the lease of another holder.
type Revocation struct {
	Lease  uint64
	AtOnce bool   // free the permit without the holder's confirmation
	Why    string // reason, reported to the holder
}

// A Page selects a part of a sorted list of names. The zero value selects all.
type Page struct {
	After string // only names after this one
	Limit int    // maximum number; 0: no limit
}

// of returns the selected names, and a listing with More and Next set.
func (p Page) of(names []string) (selected []string, l Listing) {
	first := 0
	if p.After != "" {
		at, found := slices.BinarySearch(names, p.After)
		if first = at; found {
			first++
		}
	}
	selected = names[first:]
	if p.Limit > 0 && len(selected) > p.Limit {
		l.More, l.Next = len(selected)-p.Limit, selected[p.Limit-1]
		selected = selected[:p.Limit]
	}
	return selected, l
}

// A Listing is a page of semaphores.
type Listing struct {
	States []State
	More   int     // number of semaphores after this page
	Next   string  // the last name of this page, for Page.After; "" if More is 0
	Bad    []error // damaged and foreign files in a host directory, the same on every page
}

// CheckNumbered fails if a semaphore exists and its permits have no numbers. It returns the
// number of its permits, or created if it does not exist.
func CheckNumbered(ctx context.Context, s Scope, name string, created int64) (capacity int64, err error) {
	state, err := s.Inspect(ctx, name)
	switch {
	case isMissing(err):
		return created, nil
	case err != nil:
		return 0, err
	case !state.Numbered:
		return 0, NotNumbered(name)
	}
	return state.Capacity, nil
}

// NotNumbered returns the error of a semaphore whose permits have no numbers.
func NotNumbered(name string) error {
	return exit.Misuse("the permits of %q have no numbers, which is fixed when a semaphore is created", name).
		With("create one with another name: sema run NAME -n N --slots 1 -- true; or remove this one first: sema rm %s", printable.Arg(name))
}
