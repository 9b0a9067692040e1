package pgstore

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sema-go/sema/fleet/protocol"
)

// Integers of PostgreSQL are signed. Unsigned numbers of the protocol are stored as
// the integers with the same bits.

// longest is a wait that is practically without limit and can be added to any clock
// without overflow.
const longest protocol.Micros = 1 << 60

// encodeBatch returns the parameters of apply_batch: the ops in parallel arrays, so
// that the server has nothing to parse.
func encodeBatch(name string, b protocol.Batch) []any {
	n := len(b.Ops)
	var (
		verbs                           = make([]int16, n)
		tickets, weights, leasts, waits = make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
		tries, pooled                   = make([]bool, n), make([]bool, n)
		details                         = make([]string, n)
		named                           = make([]int64, 0, n)
		which                           = make([]int32, n)
		places                          = map[protocol.Seq]int32{}
		acquired                        = map[protocol.Ticket]bool{}
		twice                           = false
		plain, most                     = int64(0), int64(0)
		tried                           = false
		text                            detailsText
	)
	for i, op := range b.Ops {
		verbs[i], tickets[i], weights[i], leasts[i], waits[i] = int16(op.Verb), int64(op.Ticket), op.Weight, op.Least, int64(min(op.Wait, longest))
		tries[i], pooled[i] = op.Try, op.Pooled
		plain = plainWith(plain, op)
		switch op.Verb {
		case protocol.Acquire:
			details[i] = text.of(op.Details)
			most, tried = max(most, op.Weight), tried || op.Try
			twice = twice || acquired[op.Ticket]
			acquired[op.Ticket] = true
		case protocol.Release, protocol.Split, protocol.Settle:
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
		verbs, tickets, weights, leasts, waits, tries, pooled, details, named, which, twice, plain, most, true,
	}
}

// encodeKey returns the key as a uuid, which has as many bits.
func encodeKey(k protocol.Key) pgtype.UUID { return pgtype.UUID{Bytes: k, Valid: true} }

// detailsText encodes the details of acquires. In a batch most are equal to the ones
// before, and then the text is reused.
type detailsText struct {
	details *protocol.Details
	text    string
}

func (t *detailsText) of(d *protocol.Details) string {
	if d != t.details {
		t.details, t.text = d, d.Encode()
	}
	return t.text
}

// notPlain marks batches with other ops than whole releases and acquires that are not
// pooled.
const notPlain = -1

// plainWith returns the sum of the weights that a plain batch acquires, with one more
// op.
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

// A row holds the result of apply_batch. All of it is nil if there is no such semaphore.
type row struct {
	status                                       *int16
	more, recall, exact                          *bool
	next, inUse, wanted, first, share, undecided *int64
	config                                       []int64
	n, ticket, lease, weight, goneFrom, goneTo   []int64
	kind                                         []int16
	text                                         []string // Granted: slots; Revoked: note
	floor, top                                   *int64
}

func (r *row) scan(from pgx.Row) error {
	return from.Scan(&r.status, &r.more, &r.next, &r.recall, &r.inUse, &r.wanted, &r.first, &r.share, &r.undecided, &r.config,
		&r.n, &r.kind, &r.ticket, &r.lease, &r.weight, &r.text, &r.exact, &r.floor, &r.top, &r.goneFrom, &r.goneTo)
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
			Weight: r.weight[i],
		}
		switch f.Kind {
		case protocol.Granted:
			f.Fence, f.Slots = live.fence(f.Lease), protocol.Slots(r.text[i])
		case protocol.Revoked:
			f.Note = decodeText(r.text[i])
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

// live describes the leases that exist, up to the last in the results.
type live struct {
	exact      bool
	floor, top protocol.Seq // the lowest and the highest; 0: there is none
	gone       []protocol.Range
}

// fence returns the fence of a lease, as State.fences does.
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
	if (in || seq > l.top) && from < seq { // its own lease has ended, and so have those just before it
		f.Revoked = append(f.Revoked, protocol.Range{From: from, To: seq - 1})
	}
	return f
}

func decodeConfig(c []int64) (protocol.Config, error) {
	if len(c) != 11 {
		return protocol.Config{}, fmt.Errorf("configuration with %d fields: want 11", len(c))
	}
	return protocol.Config{
		Kind: protocol.Kind(c[0]), Capacity: c[1], Whole: c[2], Ramp: c[3], MaxWaiters: c[4], TTL: protocol.Micros(c[5]), Window: protocol.Micros(c[6]),
		Draining: c[7] != 0, Version: uint64(c[8]), Protocol: uint32(c[9]), Numbered: c[10] != 0,
	}, nil
}
