// Package fleettest is what every engine for fleet semaphores has to pass. Those
// who write one call [Run] in a test of theirs, against the real thing.
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

// Run checks an engine. Each check asks for a store of its own, to an engine
// that may be shared: names of semaphores do not collide.
func Run(t *testing.T, open func(t *testing.T) fleet.Store) {
	t.Helper()
	for _, c := range Checks() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			if err := c.Run(ctx, store); err != nil {
				t.Error(err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A Check is one property of an engine.
type Check struct {
	Name string
	Run  func(context.Context, fleet.Store) error
}

// Checks are all there are.
func Checks() []Check {
	return slices.Concat(batchChecks, lineChecks, adminChecks, hintChecks, oracleChecks, timeChecks)
}

// check makes a Check of a function that speaks to a semaphore of its own, and
// panics with a failure.
func check(name string, c protocol.Config, run func(*speaker)) Check {
	c.Protocol = protocol.Version
	if c.TTL == 0 { // too long for anybody to die meanwhile
		c.TTL = protocol.Micros(time.Hour / time.Microsecond)
	}
	return Check{name, func(ctx context.Context, store fleet.Store) (err error) {
		defer func() {
			switch failed := recover().(type) {
			case nil:
			case failure:
				err = failed
			default:
				panic(failed)
			}
		}()
		run(&speaker{
			ctx: ctx, store: store, config: c, name: fmt.Sprintf("fleettest-%016x", rand.Uint64()),
			seqs: map[protocol.Session]uint64{}, acks: map[protocol.Session]uint64{},
		})
		return nil
	}}
}

type failure error

// A speaker speaks to one semaphore, in several sessions.
type speaker struct {
	ctx    context.Context
	store  fleet.Store
	name   string
	config protocol.Config
	seqs   map[protocol.Session]uint64
	acks   map[protocol.Session]uint64
}

func (s *speaker) fail(format string, args ...any) { panic(failure(fmt.Errorf(format, args...))) }

func (s *speaker) must(err error) {
	if err != nil {
		s.fail("%w", err)
	}
}

func (s *speaker) mustBe(err, want error) {
	if !errors.Is(err, want) {
		s.fail("error %v, want %v", err, want)
	}
}

func (s *speaker) open() protocol.Session { return s.openAs("fleettest") }

func (s *speaker) openAs(instance string) protocol.Session {
	id, config, err := s.store.Open(s.ctx, s.name, s.config, instance)
	s.must(err)
	if config.Kind != s.config.Kind || config.TTL != s.config.TTL {
		s.fail("opened with %+v, want %+v", config, s.config)
	}
	return id
}

// say says the next batch of a session and acknowledges what is heard.
func (s *speaker) say(id protocol.Session, ops ...protocol.Op) protocol.Reply {
	s.seqs[id]++
	return s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ack: s.acks[id], Ops: ops})
}

func (s *speaker) apply(b protocol.Batch) protocol.Reply {
	r, err := s.store.Apply(s.ctx, s.name, b)
	s.must(err)
	for _, f := range r.Fates {
		s.acks[b.Session] = max(s.acks[b.Session], f.N)
	}
	return r
}

func (s *speaker) inspect() protocol.Snapshot {
	snapshot, err := s.store.Inspect(s.ctx, s.name)
	s.must(err)
	return snapshot
}

// wantFates fails unless the reply has just these fates, and returns them.
func (s *speaker) wantFates(r protocol.Reply, want ...protocol.FateKind) []protocol.Fate {
	var kinds []protocol.FateKind
	for _, f := range r.Fates {
		kinds = append(kinds, f.Kind)
	}
	if !slices.Equal(kinds, want) {
		s.fail("fates %v, want %v", kinds, want)
	}
	return r.Fates
}

// granted says ops and returns the leases, of which there must be that many.
func (s *speaker) granted(id protocol.Session, n int, ops ...protocol.Op) []protocol.Seq {
	var leases []protocol.Seq
	for _, f := range s.wantFates(s.say(id, ops...), slices.Repeat([]protocol.FateKind{protocol.Granted}, n)...) {
		leases = append(leases, f.Lease)
	}
	return leases
}

func (s *speaker) wantVerdict(r protocol.Reply, want protocol.Verdict) {
	if r.Verdict != want {
		s.fail("verdict %d, want %d", r.Verdict, want)
	}
}

func (s *speaker) wantInUse(inUse int64, waiting int) {
	if got := s.inspect(); got.InUse != inUse || len(got.Line) != waiting {
		s.fail("%d in use and %d in line, want %d and %d", got.InUse, len(got.Line), inUse, waiting)
	}
}

func acquire(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight}
}

func try(ticket protocol.Ticket, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Acquire, Ticket: ticket, Weight: weight, Try: true}
}

func cancel(ticket protocol.Ticket) protocol.Op {
	return protocol.Op{Verb: protocol.Cancel, Ticket: ticket}
}

func release(lease protocol.Seq) protocol.Op {
	return protocol.Op{Verb: protocol.Release, Lease: lease}
}
