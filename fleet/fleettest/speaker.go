package fleettest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A speaker speaks to one semaphore, in several sessions. It is not safe for
// concurrent use.
type speaker struct {
	ctx    context.Context
	suite  Suite
	store  fleet.Store
	test   string // its name, for who wants to run it again
	name   string
	config protocol.Config
	seqs   map[protocol.Session]uint64
	acks   map[protocol.Session]uint64
	clock  *stopped // nil: it runs
}

// another is a speaker to another semaphore.
func (s *speaker) another() speaker {
	a := *s
	a.name = fmt.Sprintf("%s-%016x", s.name, rand.Uint64())
	a.seqs, a.acks = map[protocol.Session]uint64{}, map[protocol.Session]uint64{}
	return a
}

func (s *speaker) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

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

// remove leaves nothing behind, if there is something.
func (s *speaker) remove() {
	_ = s.store.Administer(context.WithoutCancel(s.ctx), s.name, fleet.Command{Delete: true})
}

// owner has the sessions of the suite.
var owner = protocol.Owner{Key: protocol.NewKey()}

// opener describes an instance that opens sessions of the suite.
func opener(instance string) protocol.Opener {
	return protocol.Opener{Client: protocol.Client{Instance: instance, Kind: "program", Host: "host of " + instance, Process: 4711}, Owner: owner}
}

func (s *speaker) open() protocol.Session { return s.openAs("fleettest") }

func (s *speaker) openAs(instance string) protocol.Session {
	id, config, err := s.store.Open(s.ctx, s.name, s.config, opener(instance))
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

// hear says nothing, and fails unless that is heard.
func (s *speaker) hear(ids ...protocol.Session) {
	for _, id := range ids {
		s.wantStatus(s.say(id), protocol.Applied)
	}
}

// repeat says the last batch of a session again.
func (s *speaker) repeat(id protocol.Session, ops ...protocol.Op) protocol.Reply {
	return s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ack: s.acks[id], Ops: ops})
}

func (s *speaker) apply(b protocol.Batch) protocol.Reply {
	if b.Owner == (protocol.Owner{}) {
		b.Owner = owner
	}
	s.must(context.Cause(s.ctx)) // there are engines that do not look at it
	r, err := s.store.Apply(s.ctx, s.name, b)
	s.must(err)
	for _, f := range r.Results {
		s.acks[b.Session] = max(s.acks[b.Session], f.N)
	}
	return r
}

func (s *speaker) inspect() protocol.Snapshot {
	snapshot, err := s.store.Inspect(s.ctx, s.name)
	s.must(err)
	return snapshot
}

// configure changes what is configured now.
func (s *speaker) configure(change func(*protocol.Config)) error {
	c := s.inspect().Config
	change(&c)
	return s.store.Administer(s.ctx, s.name, fleet.Command{Configure: &c})
}

func (s *speaker) revoke(lease protocol.Seq, atOnce bool) error {
	return s.store.Administer(s.ctx, s.name, fleet.Command{Revoke: revocation(lease, atOnce)})
}

// revocation has a note that has to be quoted with care.
func revocation(lease protocol.Seq, atOnce bool) *fleet.Revocation {
	return &fleet.Revocation{Lease: lease, AtOnce: atOnce, By: `O'Hara "the admin"`, Why: "ü\n%s"}
}

// wantResults fails unless the reply has just these results, and returns them.
func (s *speaker) wantResults(r protocol.Reply, want ...protocol.ResultKind) []protocol.Result {
	if kinds := kindsOf(r.Results); !slices.Equal(kinds, want) {
		s.fail("results %v, want %v", kinds, want)
	}
	return r.Results
}

func kindsOf(results []protocol.Result) (kinds []protocol.ResultKind) {
	for _, f := range results {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// granted says ops and returns the leases, of which there must be that many.
func (s *speaker) granted(id protocol.Session, n int, ops ...protocol.Op) []protocol.Seq {
	var leases []protocol.Seq
	for _, f := range s.wantResults(s.say(id, ops...), slices.Repeat([]protocol.ResultKind{protocol.Granted}, n)...) {
		leases = append(leases, f.Lease)
	}
	return leases
}

// fence says ops, of which one must be granted at once, and returns its fence.
func (s *speaker) fence(id protocol.Session, ops ...protocol.Op) protocol.Fence {
	return s.wantResults(s.say(id, ops...), protocol.Granted)[0].Fence
}

func (s *speaker) wantStatus(r protocol.Reply, want protocol.Status) {
	if r.Status != want {
		s.fail("status %d, want %d", r.Status, want)
	}
}

func (s *speaker) wantInUse(inUse int64, waiting int) {
	if got := s.inspect(); got.InUse != inUse || len(got.Queue) != waiting {
		s.fail("%d in use and %d in line, want %d and %d", got.InUse, len(got.Queue), inUse, waiting)
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

func split(ticket protocol.Ticket, lease protocol.Seq, weight int64) protocol.Op {
	return protocol.Op{Verb: protocol.Split, Ticket: ticket, Lease: lease, Weight: weight}
}
