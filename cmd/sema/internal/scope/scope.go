// Package scope makes semaphores of this machine (package host) and of many machines
// (package fleet) look alike to the commands of sema. It has what a command line needs
// and no more: programs use host and fleet themselves.
package scope

import (
	"context"
	"os/exec"
	"slices"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
)

// A Scope is the semaphores of a store. An operation that it does not have fails with
// [errors.ErrUnsupported], and a hint of what to do instead.
type Scope interface {
	// Semaphore opens a semaphore to acquire permits from.
	Semaphore(ctx context.Context, w Want) (Semaphore, error)

	// Names returns the sorted names that begin with a prefix.
	Names(ctx context.Context, prefix string) ([]string, error)
	// List returns the semaphores whose names begin with a prefix, sorted by name.
	List(ctx context.Context, prefix string, p Page) (Listing, error)
	Inspect(ctx context.Context, name string) (State, error)
	// Now returns the time of the clock that a State's times are of.
	Now(ctx context.Context) time.Time

	Configure(ctx context.Context, name string, c Change) error
	// Drain rejects waiters and new acquires, and waits until no permit is held.
	Drain(ctx context.Context, name string) error
	Resume(ctx context.Context, name string) error
	Delete(ctx context.Context, name string) error
	Revoke(ctx context.Context, name string, r Revocation) error

	// Host reports whether it is this machine alone.
	Host() bool
	Close(ctx context.Context) error
}

// A Want describes the permits that a command acquires.
type Want struct {
	Name     string
	Capacity int64                    // 0: as stored, or 1 for a new semaphore
	TTL      time.Duration            // 0: as stored, or [DefaultTTL] for a new semaphore
	Wait     time.Duration            // 0: do not wait; negative: no limit
	Command  string                   // the program that runs under the permit, without its arguments: they may be secret
	About    string                   // the user's description; "" if there is none
	Warn     func(facts, hint string) // is called if the stored configuration differs; hint may be empty
}

// A Semaphore grants the permits of a command.
type Semaphore interface {
	// Acquire waits as long as Want says. It fails with ErrTimeout after that, and with
	// ErrFull if it does not wait.
	Acquire(ctx context.Context, weight int64) (Hold, error)
	// Standing returns the state with the position of this process in the queue.
	Standing(ctx context.Context) (Standing, error)
}

// A Standing is the state of a semaphore and the position of this process in its queue.
type Standing struct {
	State
	Position int  // from 1 on; 0 if it is not known
	AtMost   bool // the position may be lower
}

// A Hold is a permit that was acquired.
type Hold interface {
	// Environment returns variables for the command, as for [exec.Cmd].
	Environment() []string
	// Attach prepares the command, which is not started yet, for the case that this
	// process is killed.
	Attach(cmd *exec.Cmd) error
	// Lost is closed when another holder may get the permit; nil if that cannot happen.
	Lost() <-chan struct{}
	// Err returns nil while the permit is held, by the clock.
	Err() error
	// Left returns how long the permit is held without a further renewal. expires is
	// false if it has no end.
	Left() (left time.Duration, expires bool)
	// Deadline returns when a command whose permit was lost must have ended: another
	// holder may be admitted soon after.
	Deadline() time.Time
	// Release returns when the store has confirmed the release.
	Release(ctx context.Context) error
}

// A Change has the settings to change. Those that are nil stay as they are.
type Change struct {
	Capacity, Ramp *int64
	MaxWaiters     *MaxWaiters
	Draining       *bool
}

// A Revocation ends the lease of another holder.
type Revocation struct {
	Lease  uint64
	AtOnce bool   // free the permit without the holder's confirmation
	Why    string // for the holder
}

// A Page selects a part of a sorted list of names. The zero value selects all.
type Page struct {
	After string // only names after this one
	Limit int    // at most so many; 0: no limit
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
	More   int     // semaphores after this page
	Next   string  // the last name of this page, for Page.After; "" if More is 0
	Bad    []error // files of a host directory that are damaged or foreign, on any page
}

// Open opens the scope of a store.
func Open(ctx context.Context, u store.URL, access store.Access) (Scope, error) {
	if u.IsHost() {
		return openHost(u)
	}
	opened, err := OpenStore(ctx, u, access)
	if err != nil {
		return nil, err
	}
	return Of(opened), nil
}

// OpenStore opens a store. It rejects stores that processes cannot share.
func OpenStore(ctx context.Context, u store.URL, access store.Access) (fleet.Store, error) {
	if u.IsMemory() {
		return nil, exit.Misuse("mem: is lost when this process ends, and no other process reaches it").With("use host: on one machine")
	}
	return u.Open(ctx, access)
}
