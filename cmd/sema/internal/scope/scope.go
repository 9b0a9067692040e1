// Package scope makes semaphores of this machine (package host) and of many
// machines (package fleet) look alike to the commands of sema. It has what a
// command line needs and no more: programs use host and fleet themselves.
package scope

import (
	"context"
	"os/exec"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
)

// A Scope is where semaphores are. What a scope cannot do fails with
// [errors.ErrUnsupported], and says what to do instead.
type Scope interface {
	// Semaphore is for who wants permits.
	Semaphore(ctx context.Context, w Want) (Semaphore, error)

	Names(ctx context.Context, prefix string) ([]string, error)
	List(ctx context.Context, prefix string) ([]State, error)
	Inspect(ctx context.Context, name string) (State, error)
	Configure(ctx context.Context, name string, c Change) error
	Drain(ctx context.Context, name string) error // waits until nothing is held
	Resume(ctx context.Context, name string) error
	Delete(ctx context.Context, name string) error
	Revoke(ctx context.Context, name string, r fleet.Revocation) error

	// Host reports whether it is this machine alone.
	Host() bool
	Close(ctx context.Context) error
}

// A Want is which permits somebody wants, and how.
type Want struct {
	Name     string
	Capacity int64         // 0: as it is, or 1 if it is new
	TTL      time.Duration // 0: as it is, or the usual one
	Wait     time.Duration // at most; below 0: without limit
	Command  string        // for whom, for people: the program alone, its arguments may be secret
	About    string        // what for, for people; "" if it is not said
	Warn     func(string)  // is told of what is not as wanted
}

// A Semaphore is one from which a command has its permits.
type Semaphore interface {
	// Acquire fails with ErrTimeout when the wait is over, and with ErrFull at once
	// if there is to be none.
	Acquire(ctx context.Context, weight int64) (Hold, error)
	// Standing is how it looks to who waits.
	Standing(ctx context.Context) (Standing, error)
}

// A Standing is how the line looks to somebody in it.
type Standing struct {
	State
	Position int  // in line, from 1 on; 0 if it is not known
	AtMost   bool // or further ahead
}

// A Hold is permits that were had.
type Hold interface {
	// Environment is what the command is told, as for [exec.Cmd].
	Environment() []string
	// Attach settles what becomes of the command, which is not started yet, when
	// this process is killed.
	Attach(cmd *exec.Cmd) error
	// Lost is closed when others may get the permits; nil if that cannot be.
	Lost() <-chan struct{}
	// Err is nil while they are held, by the clock.
	Err() error
	// Left is for how long they are held if this process does nothing more, if that
	// has an end.
	Left() (left time.Duration, expires bool)
	// Deadline is when nothing may be done any more with what is lost: others may be
	// let in soon after.
	Deadline() time.Time
	// Release waits until it is heard.
	Release(ctx context.Context) error
}

// A Change is of what is set in it.
type Change struct {
	Capacity, Ramp, MaxWaiters *int64
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
	return newFleet(opened), nil
}

// OpenStore opens a store. It rejects stores that processes cannot share.
func OpenStore(ctx context.Context, u store.URL, access store.Access) (fleet.Store, error) {
	if u.IsMemory() {
		return nil, exit.Misuse("mem: is lost when this process ends, and no other process reaches it").With("use host: on one machine")
	}
	return u.Open(ctx, access)
}
