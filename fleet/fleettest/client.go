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

// A client sends batches to one semaphore, in several sessions. It is not safe for concurrent
// use.
type client struct {
	ctx    context.Context
	suite  Suite
	store  fleet.Store
	test   string // name of the test, to run it again
	name   string
	config protocol.Config
	seqs   map[protocol.Session]uint64
	acks   map[protocol.Session]uint64
	clock  *stoppedClock // nil: the clock runs
}

// another returns a client of another semaphore.
func (s *client) another() client {
	a := *s
	a.name = fmt.Sprintf("%s-%016x", s.name, rand.Uint64())
	a.seqs, a.acks = map[protocol.Session]uint64{}, map[protocol.Session]uint64{}
	return a
}

func (s *client) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (s *client) must(err error) {
	if err != nil {
		s.fail("%w", err)
	}
}

func (s *client) mustBe(err, want error) {
	if !errors.Is(err, want) {
		s.fail("error %v, want %v", err, want)
	}
}

// remove deletes the semaphore, if it exists.
func (s *client) remove() {
	_ = s.store.Administer(context.WithoutCancel(s.ctx), s.name, fleet.Command{Delete: true})
}

// owner owns the sessions of the suite.
var owner = protocol.Owner{Key: protocol.NewKey()}

// opener returns an opener for sessions of an instance.
func opener(instance string) protocol.Opener {
	return protocol.Opener{Client: protocol.Client{Instance: instance, Kind: "program", Host: "host of " + instance, Process: 4711}, Owner: owner}
}

func (s *client) open() protocol.Session { return s.openAs("fleettest") }

func (s *client) openAs(instance string) protocol.Session {
	id, config, err := s.store.Open(s.ctx, s.name, s.config, opener(instance))
	s.must(err)
	if config.Kind != s.config.Kind || config.TTL != s.config.TTL {
		s.fail("opened with %+v, want %+v", config, s.config)
	}
	return id
}

// send sends the next batch of a session and acknowledges its results with the one after it.
func (s *client) send(id protocol.Session, ops ...protocol.Op) protocol.Reply {
	s.seqs[id]++
	return s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ack: s.acks[id], Ops: ops})
}

// heartbeat sends a heartbeat for each session, and fails unless it is applied.
func (s *client) heartbeat(ids ...protocol.Session) {
	for _, id := range ids {
		s.wantStatus(s.send(id), protocol.Applied)
	}
}

// repeat sends the last batch of a session again.
func (s *client) repeat(id protocol.Session, ops ...protocol.Op) protocol.Reply {
	return s.apply(protocol.Batch{Session: id, Seq: s.seqs[id], Ack: s.acks[id], Ops: ops})
}

func (s *client) apply(b protocol.Batch) protocol.Reply {
	if b.Owner == (protocol.Owner{}) {
		b.Owner = owner
	}
	s.must(context.Cause(s.ctx)) // some stores ignore the context
	r, err := s.store.Apply(s.ctx, s.name, b)
	s.must(err)
	for _, f := range r.Results {
		s.acks[b.Session] = max(s.acks[b.Session], f.N)
	}
	return r
}

func (s *client) inspect() protocol.Snapshot {
	snapshot, err := s.store.Inspect(s.ctx, s.name)
	s.must(err)
	return snapshot
}

// configure applies a change to the current configuration.
func (s *client) configure(change func(*protocol.Config)) error {
	c := s.inspect().Config
	change(&c)
	return s.store.Administer(s.ctx, s.name, fleet.Command{Configure: &c})
}

func (s *client) revoke(lease protocol.Seq, atOnce bool) error {
	return s.store.Administer(s.ctx, s.name, fleet.Command{Revoke: revocation(lease, atOnce)})
}

// revocation returns a revocation whose note needs careful quoting.
func revocation(lease protocol.Seq, atOnce bool) *fleet.Revocation {
	return &fleet.Revocation{Lease: lease, AtOnce: atOnce, By: `O'Hara "the admin"`, Why: "ü\n%s"}
}

// wantResults returns the results of the reply, and fails unless they are of these kinds.
func (s *client) wantResults(r protocol.Reply, want ...protocol.ResultKind) []protocol.Result {
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

// granted sends ops and returns the granted leases. It fails unless there are n of them.
func (s *client) granted(id protocol.Session, n int, ops ...protocol.Op) []protocol.Seq {
	var leases []protocol.Seq
	for _, f := range s.wantResults(s.send(id, ops...), slices.Repeat([]protocol.ResultKind{protocol.Granted}, n)...) {
		leases = append(leases, f.Lease)
	}
	return leases
}

// fence sends ops, of which one must be granted at once, and returns its fence.
func (s *client) fence(id protocol.Session, ops ...protocol.Op) protocol.Fence {
	return s.wantResults(s.send(id, ops...), protocol.Granted)[0].Fence
}

func (s *client) wantStatus(r protocol.Reply, want protocol.Status) {
	if r.Status != want {
		s.fail("status %d, want %d", r.Status, want)
	}
}

func (s *client) wantInUse(inUse int64, waiting int) {
	if got := s.inspect(); got.InUse != inUse || len(got.Queue) != waiting {
		s.fail("%d in use and %d queued, want %d and %d", got.InUse, len(got.Queue), inUse, waiting)
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
