package protocol_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
)

func TestPeer_DeadlineCountsFromTheFirstSend(t *testing.T) {
	t.Parallel()
	p := protocol.NewPeer(0, 1, protocol.Config{TTL: ttl}, tester)
	p.Request(acquire(1, 1))
	b := p.Send(10*ms, 8)
	p.Send(500*ms, 8) // again, because no reply was received
	p.Receive(510*ms, b.Seq, protocol.Reply{Config: protocol.Config{TTL: ttl}})
	if want := 10*ms + ttl*2/3; p.Deadline() != want {
		t.Errorf("deadline %d, want %d", p.Deadline(), want)
	}
}

func TestPeer_LostSessionStaysLost(t *testing.T) {
	t.Parallel()
	p := protocol.NewPeer(0, 1, protocol.Config{TTL: ttl}, tester)
	b := p.Send(ttl/2, 8)
	if !p.Ended(ttl * 2 / 3) {
		t.Fatal("the session has not ended at its deadline")
	}
	p.Receive(ttl*2/3, b.Seq, protocol.Reply{Config: protocol.Config{TTL: ttl}})
	if !p.Ended(ttl*2/3) || p.Due(ttl) {
		t.Error("a late reply revived the session")
	}
}

func TestPeer_ReleasesGrantsOfCancelledTickets(t *testing.T) {
	t.Parallel()
	c := protocol.Config{TTL: ttl}
	p := protocol.NewPeer(0, 1, c, tester)
	p.Request(acquire(1, 1))
	p.Request(acquire(2, 1))
	p.Request(protocol.Op{Verb: protocol.Cancel, Ticket: 1}) // before it was sent
	b := p.Send(0, 8)
	if len(b.Ops) != 1 || b.Ops[0].Ticket != 2 {
		t.Fatalf("%+v", b.Ops)
	}
	p.Request(protocol.Op{Verb: protocol.Cancel, Ticket: 2})
	r := protocol.Reply{Config: c, Results: []protocol.Result{{N: 1, Kind: protocol.Granted, Ticket: 2, Lease: 9}}}
	if results := p.Receive(1, b.Seq, r); len(results) != 0 {
		t.Errorf("results %+v of a cancelled ticket", results)
	}
	b = p.Send(2, 8)
	if want := []protocol.Op{release(9)}; b.Ack != 1 || !reflect.DeepEqual(b.Ops, want) {
		t.Errorf("%+v, want an acknowledgement and a release", b)
	}
}

func TestPeer_ReturnsAResultOnce(t *testing.T) {
	t.Parallel()
	c := protocol.Config{TTL: ttl}
	p := protocol.NewPeer(0, 1, c, tester)
	p.Request(acquire(1, 1))
	results := []protocol.Result{{N: 1, Kind: protocol.Granted, Ticket: 1, Lease: 9}}
	b := p.Send(0, 8)
	if fresh := p.Receive(1, b.Seq, protocol.Reply{Config: c, Results: results}); len(fresh) != 1 || !p.Holds(1, 9) {
		t.Fatalf("%+v", fresh)
	}
	p.Request(release(9))
	b = p.Send(2, 8)
	if fresh := p.Receive(3, b.Seq, protocol.Reply{Config: c, Results: results}); len(fresh) != 0 || p.Holds(3, 9) {
		t.Errorf("results %+v are returned twice", fresh)
	}
	if b = p.Send(4, 8); len(b.Ops) != 0 {
		t.Errorf("%+v", b.Ops)
	}
}

func TestPeer_DeadlineFollowsReplyValid(t *testing.T) {
	t.Parallel()
	config := protocol.Config{Capacity: 1, TTL: ttl}
	p := protocol.NewPeer(0, 1, config, tester)
	p.Request(acquire(1, 1))
	send := func(now protocol.Micros, valid protocol.Micros) {
		b := p.Send(now, 8)
		p.Receive(now+ms, b.Seq, protocol.Reply{Config: config, Valid: valid, Results: []protocol.Result{{N: 1, Kind: protocol.Granted, Ticket: 1, Lease: 7, Weight: 1}}})
	}
	send(10*ms, ttl/4)
	if p.Deadline() != 10*ms+ttl/4 || p.NextSend() > 10*ms+ttl/8 {
		t.Errorf("deadline %d, next send %d", p.Deadline(), p.NextSend())
	}
	send(20*ms, -1)
	if p.Deadline() != 10*ms+ttl/4 {
		t.Errorf("deadline %d: changed by a reply that renews nothing", p.Deadline())
	}
	send(30*ms, ttl)
	if p.Deadline() != 30*ms+ttl*2/3 {
		t.Errorf("deadline %d, want two thirds of a TTL", p.Deadline())
	}
	if !p.Holds(40*ms, 7) || p.Holds(p.Deadline(), 7) {
		t.Error("the lease is not held exactly until the deadline")
	}
}

func TestPeer_UndoesRejectedSplit(t *testing.T) {
	t.Parallel()
	config := protocol.Config{Capacity: 4, TTL: ttl}
	p := protocol.NewPeer(0, 1, config, tester)
	p.Request(acquire(1, 3))
	receive := func(now protocol.Micros, f protocol.Result) {
		b := p.Send(now, 8)
		p.Receive(now, b.Seq, protocol.Reply{Config: config, Results: []protocol.Result{f}})
	}
	receive(1, protocol.Result{N: 1, Kind: protocol.Granted, Ticket: 1, Lease: 7, Weight: 3})
	p.Request(protocol.Op{Verb: protocol.Split, Ticket: 2, Lease: 7, Weight: 2})
	receive(2, protocol.Result{N: 2, Kind: protocol.Invalid, Ticket: 2})
	p.Request(protocol.Op{Verb: protocol.Release, Lease: 7, Weight: 2})
	if !p.Holds(3, 7) {
		t.Error("the lease is gone after two of three permits were released")
	}
}

func TestPeer_LastSeqCoversAllRequests(t *testing.T) {
	t.Parallel()
	config := protocol.Config{Capacity: 4, TTL: ttl}
	p := protocol.NewPeer(0, 1, config, tester)
	for i := range protocol.Ticket(10) {
		p.Request(acquire(i+1, 1))
	}
	last := p.LastSeq(4)
	if last != 3 {
		t.Fatalf("ten operations, four per batch: last batch %d, want 3", last)
	}
	for range 3 {
		if p.Replied() >= last {
			t.Error("replied before it was sent")
		}
		b := p.Send(1, 4)
		p.Request(acquire(protocol.Ticket(100+b.Seq), 1))
		if p.Replied() != b.Seq-1 {
			t.Errorf("replied %d while %d is in flight", p.Replied(), b.Seq)
		}
		p.Receive(1, b.Seq, protocol.Reply{Config: config})
	}
	if p.Replied() != last {
		t.Errorf("replied %d, want %d", p.Replied(), last)
	}
}

func TestPeer_HeartbeatsAreScattered(t *testing.T) {
	t.Parallel()
	seen := map[protocol.Micros]bool{}
	for id := range protocol.Session(100) {
		at := protocol.NewPeer(0, id, protocol.Config{TTL: ttl}, tester).NextSend()
		if at > ttl/3 || at < ttl/3*7/8 {
			t.Errorf("next heartbeat after %d of a TTL of %d", at, ttl)
		}
		seen[at] = true
	}
	if len(seen) < 90 {
		t.Errorf("the heartbeats of a hundred sessions are at %d times", len(seen))
	}
}

// TestPeer_ReceiveKeepsTheReply checks that results that are not new are left out, and that
// the reply, which the network may deliver twice, is not changed.
func TestPeer_ReceiveKeepsTheReply(t *testing.T) {
	t.Parallel()
	c := protocol.Config{Capacity: 5, TTL: ttl}
	granted := func(n uint64) protocol.Result {
		return protocol.Result{N: n, Kind: protocol.Granted, Ticket: protocol.Ticket(n), Lease: protocol.Seq(n), Weight: 1}
	}
	all := []protocol.Result{granted(1), granted(2), granted(3), granted(4)}
	for _, cancelled := range [][]protocol.Ticket{nil, {1}, {2}, {4}, {1, 3}, {2, 3}, {1, 2, 3, 4}} {
		p := protocol.NewPeer(0, 1, c, protocol.Opener{})
		for _, f := range all {
			p.Request(acquire(f.Ticket, 1))
		}
		b := p.Send(0, 10)
		for _, ticket := range cancelled {
			p.Request(protocol.Op{Verb: protocol.Cancel, Ticket: ticket})
		}
		want := slices.DeleteFunc(slices.Clone(all), func(f protocol.Result) bool { return slices.Contains(cancelled, f.Ticket) })
		reply := slices.Clone(all)
		fresh := p.Receive(1, b.Seq, protocol.Reply{Config: c, Results: reply})
		if !reflect.DeepEqual(reply, all) || len(fresh) != len(want) || len(want) > 0 && !reflect.DeepEqual(fresh, want) {
			t.Errorf("cancelled %v: got %+v, want %+v; the reply is %+v", cancelled, fresh, want, reply)
		}
		b = p.Send(2, 10)
		if fresh := p.Receive(3, b.Seq, protocol.Reply{Config: c, Results: reply}); len(fresh) != 0 {
			t.Errorf("cancelled %v: received again %+v", cancelled, fresh)
		}
	}
}
