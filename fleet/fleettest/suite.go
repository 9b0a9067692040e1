// Package fleettest is the conformance suite for stores of fleet semaphores. The author of
// a store calls [Run] in a test, against the real store:
//
//	func TestConforms(t *testing.T) {
//		fleettest.Run(t, func(t *testing.T) fleet.Store {
//			store, err := mystore.Open(t.Context(), "localhost:1234")
//			if err != nil {
//				t.Fatal(err)
//			}
//			return store
//		})
//	}
//
// A [Suite] has settings. A store that implements [Clocked] is checked with its clock stopped
// and stepped, which takes no time and checks more precisely. Checks that need this are
// skipped for other stores.
//
// Most checks are short scripts, in files by concern: batches, owners, queue, fences, admin,
// settle, notify, versions, time, clock, pitfalls. In addition, random histories are applied to
// the store and to [protocol.State], and the results are compared; rapid shrinks the histories
// that fail. Histories of concurrent callers are checked by porcupine for linearizability with
// the model.
package fleettest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// Run checks a store. Each check opens a store of its own, which may share a server with
// others: names of semaphores do not collide.
func Run(t *testing.T, open func(t *testing.T) fleet.Store) {
	t.Helper()
	Suite{Open: open}.Run(t)
}

// A Suite is the set of checks, with its settings.
type Suite struct {
	// Open opens a store for a check. The suite closes it.
	Open func(t *testing.T) fleet.Store

	// Histories is the number of random histories that the store is checked with, of
	// about twenty calls each and four at a time; default 3,000.
	Histories int

	// TTL is the TTL for checks in which a session expires on a running clock: the
	// shortest that the store supports; default 150 ms.
	TTL time.Duration

	// Timeout bounds the duration of one check. The default is 90 % of the time until the
	// deadline of the test binary (go test -timeout), so that no check fails only because
	// the machine is slow or busy.
	Timeout time.Duration
}

// Run checks a store.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	for _, c := range s.Checks() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			store := s.Open(t)
			ctx, cancel := s.bound(t)
			defer cancel()
			err := c.run(ctx, store, t.Name())
			if closed := store.Close(); closed != nil {
				t.Error(closed)
			}
			switch {
			case errors.Is(err, errNotOffered):
				t.Skip(err)
			case err != nil:
				t.Error(err)
			}
		})
	}
}

// bound returns the context of a check that begins now.
func (s Suite) bound(t *testing.T) (context.Context, context.CancelFunc) {
	timeout := s.Timeout
	if end, ok := t.Deadline(); ok && timeout == 0 {
		timeout = time.Until(end) * 9 / 10
	}
	if timeout == 0 {
		return context.WithCancel(t.Context())
	}
	return context.WithTimeoutCause(t.Context(), timeout, fmt.Errorf("check takes longer than %v (see Suite.Timeout): %w", timeout.Round(time.Second), context.DeadlineExceeded))
}

// A Check checks one property of a store.
type Check struct {
	Name string
	run  func(ctx context.Context, store fleet.Store, test string) error
}

// errNotOffered means that a store does not offer an optional feature. A store that returns
// such an error for a required operation fails.
var errNotOffered = fmt.Errorf("not offered: %w", errors.ErrUnsupported)

// Run runs the check outside of a test. It fails with [errors.ErrUnsupported] if
// the store does not offer what the check needs.
func (c Check) Run(ctx context.Context, store fleet.Store) error { return c.run(ctx, store, c.Name) }

// Checks returns all checks.
func (s Suite) Checks() []Check {
	if s.Histories == 0 {
		s.Histories = 3000
	}
	if s.TTL == 0 {
		s.TTL = 150 * time.Millisecond
	}
	var checks []Check
	for _, script := range slices.Concat(
		batchScripts, ownerScripts, queueScripts, fenceScripts, adminScripts, settleScripts, numberedScripts, notifyScripts, versionScripts,
		timeScripts, clockScripts, pitfallScripts, oracleScripts, linearScripts, conservationScripts,
	) {
		checks = append(checks, script.check(s))
	}
	return checks
}

// A script checks a semaphore of its own, and panics with a failure.
type script struct {
	name   string
	config protocol.Config
	run    func(*client)
}

// TTLs and windows in the configuration of a script. long is so long that no session expires
// during a check; it is the default TTL. short stands for the TTL of the suite.
const (
	long  = protocol.Micros(time.Hour / time.Microsecond)
	short = protocol.Micros(-1)
)

func (sc script) check(suite Suite) Check {
	c := sc.config
	c.Protocol = protocol.Version
	if c.TTL == 0 {
		c.TTL = long
	}
	for _, d := range []*protocol.Micros{&c.TTL, &c.Window} {
		if *d == short {
			*d = micros(suite.TTL)
		}
	}
	return Check{sc.name, func(ctx context.Context, store fleet.Store, test string) (err error) {
		s := &client{
			ctx: ctx, suite: suite, store: store, config: c, test: test, name: fmt.Sprintf("fleettest-%016x", rand.Uint64()),
			seqs: map[protocol.Session]uint64{}, acks: map[protocol.Session]uint64{},
		}
		defer func() { err = failed(recover()) }()
		defer s.runClock()
		defer s.remove()
		sc.run(s)
		return nil
	}}
}

// A failure is the panic value of a script.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// failed returns the error of a recovered failure, nil if there was no panic. It panics again
// with any other value.
func failed(recovered any) error {
	switch f := recovered.(type) {
	case nil:
		return nil
	case failure:
		return f.error
	}
	panic(recovered)
}
