package pgstore

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sema-go/sema/fleet/protocol"
)

// PostgreSQL's integers have a sign. Numbers of the protocol that have none are
// stored as the integers with the same bits.

// longest is a wait that nobody sees the end of, and that can be added to any
// clock.
const longest protocol.Micros = 1 << 60

// encodeBatch is the parameters of turn: the ops side by side, so that the
// server need not parse anything.
func encodeBatch(name string, b protocol.Batch) []any {
	n := len(b.Ops)
	var (
		verbs                           = make([]int16, n)
		tickets, weights, leasts, waits = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		tries, pooled                   = make([]bool, n), make([]bool, n)
		metas                           = make([]string, n)
		named                           = make([]int64, 0, n)
		which                           = make([]int32, n)
		places                          = map[protocol.Seq]int32{}
		acquired                        = map[protocol.Ticket]bool{}
		twice                           = false
		plain, most                     = int64(0), int64(0)
		tried                           = false
	)
	for i, op := range b.Ops {
		verbs[i], tickets[i], weights[i], leasts[i], waits[i] = int16(op.Verb), int64(op.Ticket), op.Weight, op.Least, int64(min(op.Wait, longest))
		tries[i], pooled[i] = op.Try, op.Pooled
		plain = plainWith(plain, op)
		switch op.Verb {
		case protocol.Acquire:
			metas[i] = encodeText(op.Meta)
			most, tried = max(most, op.Weight), tried || op.Try
			twice = twice || acquired[op.Ticket]
			acquired[op.Ticket] = true
		case protocol.Release, protocol.Split:
			if places[op.Lease] == 0 {
				named = append(named, int64(op.Lease))
				places[op.Lease] = int32(len(named))
			}
			which[i] = places[op.Lease]
		}
	}
	if twice {
		plain = notPlain
	}
	if tried || plain == notPlain {
		most = 0
	}
	return []any{
		name, int64(b.Session), encodeKey(b.Owner.Key), encodeText(b.Owner.Principal), int64(b.Highest), int64(b.Seq), int64(b.Ack), b.End,
		verbs, tickets, weights, leasts, waits, tries, pooled, metas, named, which, twice, plain, most, true,
	}
}

// encodeKey returns the key as a uuid, which has as many bits.
func encodeKey(k protocol.Key) pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }

// notPlain is for batches in which more happens than whole releases and acquires
// of one piece.
const notPlain = -1

// plainWith is what the acquires of a plain batch weigh, with one more op.
func plainWith(sum int64, op protocol.Op) int64 {
	switch {
	case sum == notPlain:
	case op.Verb == protocol.Acquire && op.Weight > 0 && op.Weight <= protocol.MaxCapacity && !op.Pooled:
		return sum + op.Weight
	case op.Verb == protocol.Release && op.Weight == 0:
		return sum
	}
	return notPlain
}

// A row is what turn answers. All of it is null if there is no such semaphore.
type row struct {
	status                                       *int16
	more, recall, exact                          *bool
	next, inUse, wanted, first, share, undecided *int64
	config                                       []int64
	n, ticket, lease, weight, goneFrom, goneTo   []int64
	kind                                         []int16
	note                                         []string
	floor, top                                   *int64
}

func (r *row) scan(from pgx.Row) error {
	return from.Scan(&r.status, &r.more, &r.next, &r.recall, &r.inUse, &r.wanted, &r.first, &r.share, &r.undecided, &r.config,
		&r.n, &r.kind, &r.ticket, &r.lease, &r.weight, &r.note, &r.exact, &r.floor, &r.top, &r.goneFrom, &r.goneTo)
}

func (r *row) reply() (protocol.Reply, error) {
	if r.status == nil {
		return protocol.Reply{Status: protocol.Unknown}, nil
	}
	config, err := decodeConfig(r.config)
	if err != nil {
		return protocol.Reply{}, err
	}
	reply := protocol.Reply{
		Status: protocol.Status(*r.status), More: *r.more, Next: protocol.Micros(*r.next), Recall: *r.recall, Config: config,
		InUse: *r.inUse, Wanted: *r.wanted, First: *r.first, Share: *r.share, Undecided: protocol.Micros(*r.undecided),
	}
	live := live{exact: *r.exact, floor: seqOf(r.floor), top: seqOf(r.top)}
	for i := range r.goneFrom {
		live.gone = append(live.gone, protocol.Range{From: protocol.Seq(r.goneFrom[i]), To: protocol.Seq(r.goneTo[i])})
	}
	for i := range r.n {
		f := protocol.Result{
			N: uint64(r.n[i]), Kind: protocol.ResultKind(r.kind[i]), Ticket: protocol.Ticket(r.ticket[i]), Lease: protocol.Seq(r.lease[i]),
			Weight: r.weight[i], Note: decodeText(r.note[i]),
		}
		if f.Kind == protocol.Granted {
			f.Fence = live.fence(f.Lease)
		}
		reply.Results = append(reply.Results, f)
	}
	return reply, nil
}

func seqOf(n *int64) protocol.Seq {
	if n == nil {
		return 0
	}
	return protocol.Seq(*n)
}

// live is which leases there are, up to the last that the caller is told of.
type live struct {
	exact      bool
	floor, top protocol.Seq // the lowest and the highest; 0: there is none
	gone       []protocol.Range
}

// fence is as State.fences makes it.
func (l live) fence(seq protocol.Seq) protocol.Fence {
	f := protocol.Fence{Seq: seq, Floor: seq, Exact: l.exact}
	if l.floor == 0 || l.floor > seq {
		return f
	}
	f.Floor = l.floor
	if !l.exact {
		return f
	}
	n, in := slices.BinarySearchFunc(l.gone, seq, func(r protocol.Range, seq protocol.Seq) int {
		switch {
		case r.To < seq:
			return -1
		case r.From > seq:
			return 1
		}
		return 0
	})
	f.Revoked = l.gone[:n:n]
	from := l.top + 1
	if in {
		from = l.gone[n].From
	}
	if (in || seq > l.top) && from < seq { // its own lease is gone, and so is what came just before
		f.Revoked = append(f.Revoked, protocol.Range{From: from, To: seq - 1})
	}
	return f
}

func decodeConfig(c []int64) (protocol.Config, error) {
	if len(c) != 10 {
		return protocol.Config{}, fmt.Errorf("the configuration has %d parts, want 10", len(c))
	}
	return protocol.Config{
		Kind: protocol.Kind(c[0]), Capacity: c[1], Whole: c[2], Ramp: c[3], MaxWaiters: c[4], TTL: protocol.Micros(c[5]), Window: protocol.Micros(c[6]),
		Draining: c[7] != 0, Version: uint64(c[8]), Protocol: uint32(c[9]),
	}, nil
}
