// Package scope makes semaphores of this machine (package host) and of many
// machines (package fleet) look alike to the commands of sema. It has what a
// command line needs and no more: programs use host and fleet themselves.
package scope

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/engine"
	"github.com/sema-go/sema/fleet"
)

// Default is the scope of who names none: this machine, this user.
const Default = "host:"

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

// Open opens the scope of a URL: "host:" and its like, or a store's.
func Open(ctx context.Context, store string, access engine.Access) (Scope, error) {
	u, err := url.Parse(store)
	if err != nil { // its text has the URL in it, and that may have a password
		return nil, invalid("the store's URL cannot be parsed; want host:, redis://…, postgres://…, etcd://…, sema://… or sqlite:///…")
	}
	if engine.IsHost(store) {
		return openHost(store)
	}
	if u.Scheme == "" {
		return nil, invalid(fmt.Sprintf("store %q has no scheme; want host:, redis://…, postgres://…, etcd://…, sema://… or sqlite:///…", withoutSecret(store)))
	}
	opened, err := OpenStore(ctx, store, access)
	if err != nil {
		return nil, err
	}
	return newFleet(opened), nil
}

// OpenStore opens a store. It rejects those that processes cannot share.
func OpenStore(ctx context.Context, store string, access engine.Access) (fleet.Store, error) {
	scheme, _, _ := strings.Cut(store, ":")
	switch scheme {
	case "host":
		return nil, fmt.Errorf("semaphores of this machine are held by processes, not leased by an engine: %w; name one with --store or SEMA_STORE", errors.ErrUnsupported)
	case "mem":
		return nil, invalid("mem: is forgotten with this process, and nobody else could reach it; use host: on one machine")
	}
	opened, err := engine.OpenStore(ctx, store, access)
	var known *engine.Error
	if err != nil && !errors.Is(err, sema.ErrInvalid) && !errors.As(err, &known) {
		return nil, &Unreachable{err}
	}
	return opened, err
}

// An Unreachable is an engine that could not be spoken to, for whatever reason.
type Unreachable struct{ Cause error }

func (u *Unreachable) Error() string { return u.Cause.Error() }

// Unwrap has what it is, besides [sema.ErrUnavailable].
func (u *Unreachable) Unwrap() []error { return []error{u.Cause, sema.ErrUnavailable} }

func invalid(detail string) error {
	return &sema.Error{Op: "open", Err: sema.ErrInvalid, Detail: detail}
}

// withoutSecret is what may be shown of a URL that is none.
func withoutSecret(store string) string {
	if at := strings.LastIndexByte(store, '@'); at >= 0 {
		return "…" + store[at:]
	}
	return store
}
