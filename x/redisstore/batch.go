package redisstore

import (
	"slices"
	"strconv"

	"github.com/sema-go/sema/fleet/protocol"
)

// packBatch returns a request for apply.lua, and the hash fields of the leases that it
// releases. The script reads those fields together with the session. Numbers of tickets,
// leases and sessions are strings, since the script does not calculate with most of them.
func packBatch(seen, promotion int64, b protocol.Batch) (p packer, leases []string) {
	order := make([]byte, len(b.Ops))
	for i, op := range b.Ops {
		order[i] = opcode(op)
		if order[i] == 'r' {
			leases = append(leases, "L"+decimal(uint64(op.Lease)))
		}
	}
	ranges, wants, plain := planFastPath(b, order)
	p = make(packer, 0, 128+len(b.Ops)+16*len(ranges))
	p.int(seen)
	p.int(promotion)
	p.string(decimal(uint64(b.Session)))
	p.owner(b.Owner)
	p.int(int64(b.Seq))
	p.int(int64(b.Ack))
	p.int(int64(b.Highest))
	p.bool(b.End)
	if plain {
		p.int(int64(len(ranges)))
	} else {
		p.int(-1)
	}
	p.int(wants)
	p.string(string(order))
	if plain {
		for _, r := range ranges {
			p.int(int64(r.From))
			p.int(int64(r.To))
		}
	}
	p.ops(b.Ops, order)
	return p, leases
}

// opcode returns the letter that stands for an op in a request: r releases a lease, p a
// part of one.
func opcode(op protocol.Op) byte {
	switch op.Verb {
	case protocol.Acquire:
		return 'a'
	case protocol.Cancel:
		return 'c'
	case protocol.Split:
		return 's'
	case protocol.Settle:
		return 't'
	case protocol.Release:
		if op.Weight == 0 {
			return 'r'
		}
		return 'p'
	}
	return 'x'
}

// ops appends the arguments of the ops, in order.
func (p *packer) ops(ops []protocol.Op, order []byte) {
	pending := 0 // acquires of the last run that follow
	var details detailsText
	for i, op := range ops {
		switch {
		case order[i] == 'r':
		case order[i] != 'a':
			p.op(op)
		case pending == 0:
			pending = p.run(ops[i:], &details) - 1
		default:
			pending--
		}
	}
}

// op appends an op that is not part of a run.
func (p *packer) op(op protocol.Op) {
	name, of := decimal(uint64(op.Ticket)), ""
	switch op.Verb {
	case protocol.Release:
		name = decimal(uint64(op.Lease))
	case protocol.Split, protocol.Settle:
		of = decimal(uint64(op.Lease))
	}
	p.string(name)
	p.string(of)
	p.int(op.Weight)
	if op.Verb == protocol.Settle {
		p.int(op.Least)
	}
}

// run appends the first acquire together with the equal acquires after it, and returns
// their number. Most acquires are equal, because they come from the same call site.
func (p *packer) run(ops []protocol.Op, details *detailsText) (n int) {
	first, timed := ops[0], false
	var waits []int64
	for _, op := range ops {
		if op.Verb != protocol.Acquire {
			continue
		}
		if n > 0 && !follows(first, op, n) {
			break
		}
		waits = append(waits, int64(op.Wait))
		timed = timed || op.Wait != 0
		n++
	}
	p.int(int64(n))
	p.string(decimal(uint64(first.Ticket)))
	p.int(first.Weight)
	p.int(first.Least)
	p.int(flags(first))
	p.bool(timed)
	p.string(details.encode(first.Details))
	if timed {
		for _, wait := range waits {
			p.int(wait)
		}
	}
	return n
}

// A detailsText caches the encoding of the last details. Most acquires of a batch have
// the same details.
type detailsText struct {
	of   *protocol.Details
	text string
}

func (d *detailsText) encode(of *protocol.Details) string {
	if of != d.of {
		d.of, d.text = of, of.Encode()
	}
	return d.text
}

// follows reports whether op can be the acquire at index n of the run that begins with
// first.
func follows(first, op protocol.Op, n int) bool {
	return op.Ticket == first.Ticket+protocol.Ticket(n) && op.Ticket < exact &&
		op.Weight == first.Weight && op.Least == first.Least && op.Try == first.Try && op.Pooled == first.Pooled && op.Details == first.Details
}

// exact is the number up to which integers are exact in Lua, whose numbers are doubles.
const exact = 1 << 53

// maxRead is the maximum number of leases that the script reads at once.
const maxRead = 1000

// planFastPath reports whether a batch may use the fast path of plain.lua. If so, it
// returns the ranges of leases that are released and the weight that is acquired.
func planFastPath(b protocol.Batch, order []byte) (ranges []protocol.Range, wants int64, plain bool) {
	var released []protocol.Seq
	var last protocol.Ticket
	for i, op := range b.Ops {
		switch {
		case order[i] == 'r' && op.Lease < exact && len(released) < maxRead:
			released = append(released, op.Lease)
		case order[i] == 'a' && !op.Pooled && op.Weight > 0 && op.Weight <= protocol.MaxCapacity && op.Ticket > last && op.Ticket < exact:
			last = op.Ticket
			wants += op.Weight
		default:
			return nil, 0, false
		}
	}
	slices.Sort(released)
	for i, seq := range released {
		switch {
		case i == 0 || seq > released[i-1]+1:
			ranges = append(ranges, protocol.Range{From: seq, To: seq})
		case seq == released[i-1]:
			return nil, 0, false // named twice
		default:
			ranges[len(ranges)-1].To = seq
		}
	}
	return ranges, wants, !b.End
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }

func flags(op protocol.Op) (flags int64) {
	if op.Try {
		flags |= 1
	}
	if op.Pooled {
		flags |= 2
	}
	return flags
}
