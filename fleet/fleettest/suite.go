// Package fleettest is what every engine for fleet semaphores has to pass. Those
// who write one call [Run] in a test of theirs, against the real thing:
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
// A [Suite] has what can be adjusted. A store that is [Clocked] is checked with
// its clock stopped and stepped, which takes no time and looks more closely;
// checks that cannot do without are skipped for others.
//
// Most checks are short scripts, in files by concern: batches, line, fences,
// administration, hints, versions, time, clock, pitfalls. Beside them the engine
// is led through random histories and compared with [protocol.State], which
// rapid shortens when they fail; and histories of concurrent callers are
// checked by porcupine for an order in which the model would have answered the
// same.
package fleettest

import (
	"cmp"
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

// Run checks an engine. Each check opens a store of its own, to an engine that
// may be shared: names of semaphores do not collide.
func Run(t *testing.T, open func(t *testing.T) fleet.Store) {
	t.Helper()
	Suite{Open: open}.Run(t)
}

// A Suite is the checks, and how hard they look.
type Suite struct {
	// Open opens a store for a check. The suite closes it.
	Open func(t *testing.T) fleet.Store

	// Histories is how many random ones the engine is led through, of about
	// twenty calls each and four at a time; 0 for 3,000.
	Histories int

	// TTL is for checks in which somebody dies, on a clock that runs: the
	// shortest that the engine can keep; 0 for 150 ms.
	TTL time.Duration

	// Patience is for how long one check may go on; 0 for two minutes.
	Patience time.Duration
}

// Run checks an engine.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	for _, c := range s.Checks() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			store := s.Open(t)
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(s.Patience, 2*time.Minute))
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

// A Check is one property of an engine.
type Check struct {
	Name string
	run  func(ctx context.Context, store fleet.Store, test string) error
}

// errNotOffered is for what a store need not offer. A store that says the like where
// it has to answer fails.
var errNotOffered = fmt.Errorf("not offered: %w", errors.ErrUnsupported)

// Run is the check outside of a test. It fails with [errors.ErrUnsupported] if
// the store cannot be checked for it.
func (c Check) Run(ctx context.Context, store fleet.Store) error { return c.run(ctx, store, c.Name) }

// Checks are all there are.
func (s Suite) Checks() []Check {
	if s.Histories == 0 {
		s.Histories = 3000
	}
	if s.TTL == 0 {
		s.TTL = 150 * time.Millisecond
	}
	var checks []Check
	for _, script := range slices.Concat(
		batchScripts, ownerScripts, lineScripts, fenceScripts, adminScripts, settleScripts, numberedScripts, hintScripts, versionScripts,
		timeScripts, clockScripts, pitfallScripts, oracleScripts, linearScripts, conservationScripts,
	) {
		checks = append(checks, script.check(s))
	}
	return checks
}

// A script speaks to a semaphore of its own, and panics with a failure.
type script struct {
	name   string
	config protocol.Config
	play   func(*speaker)
}

// In the configuration of a script: long is too long for anybody to die
// meanwhile, and the default of the TTL; short is the suite's.
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
		s := &speaker{
			ctx: ctx, suite: suite, store: store, config: c, test: test, name: fmt.Sprintf("fleettest-%016x", rand.Uint64()),
			seqs: map[protocol.Session]uint64{}, acks: map[protocol.Session]uint64{},
		}
		defer func() { err = failed(recover()) }()
		defer s.runClock()
		defer s.remove()
		sc.play(s)
		return nil
	}}
}

// A failure is what a script panics with.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// failed is the failure that was recovered, if any. It passes on what is not
// one.
func failed(recovered any) error {
	switch f := recovered.(type) {
	case nil:
		return nil
	case failure:
		return f.error
	}
	panic(recovered)
}
