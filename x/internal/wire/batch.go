// Package wire converts the requests and replies of a [fleet.Store], including errors, to
// messages of sema.v1 and back. Client and server both use it. The conversions lose
// nothing, except keys and principals as documented.
package wire

import (
	"errors"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// errMalformed is the error for messages of a version that is too new, or of another
// program.
var errMalformed = errors.New("malformed message (hint: run service and program of neighbouring versions)")

// BatchOf returns the message for a batch. The owner's principal is left out: the
// server that authenticates the client adds it.
func BatchOf(name string, b protocol.Batch) *semav1.StoreApplyRequest {
	m := &semav1.StoreApplyRequest{
		Name: name, Session: uint64(b.Session), Key: b.Owner.Key[:], Seq: b.Seq, Ack: b.Ack, End: b.End, Highest: uint64(b.Highest),
		Ops: make([]*semav1.Op, len(b.Ops)),
	}
	ops := make([]semav1.Op, len(b.Ops)) // one allocation for all
	var last *protocol.Details
	for i, op := range b.Ops {
		to := &ops[i]
		to.Verb, to.Ticket, to.Lease = semav1.Verb(op.Verb), uint64(op.Ticket), uint64(op.Lease)
		to.Weight, to.Least, to.Wait, to.Try, to.Pooled = op.Weight, op.Least, int64(op.Wait), op.Try, op.Pooled
		if op.Details != nil && *op.Details != (protocol.Details{}) {
			if op.Details != last && (last == nil || *op.Details != *last) {
				last = op.Details
				m.Details = append(m.Details, detailsOf(*last))
			}
			to.Details = uint32(len(m.Details))
		}
		m.Ops[i] = to
	}
	return m
}

// ReadBatch returns the batch in a message.
func ReadBatch(m *semav1.StoreApplyRequest) (protocol.Batch, error) {
	b := protocol.Batch{Session: protocol.Session(m.Session), Seq: m.Seq, Ack: m.Ack, End: m.End, Highest: protocol.Seq(m.Highest)}
	copy(b.Owner.Key[:], m.Key)
	details := make([]*protocol.Details, 1+len(m.Details)) // most ops share the same; index 0 is none
	for i, one := range m.Details {
		// Each has memory of its own, since a lease may keep it for longer than the others.
		if read := readDetails(one); read != (protocol.Details{}) {
			details[i+1] = &read
		}
	}
	if len(m.Ops) > 0 {
		b.Ops = make([]protocol.Op, len(m.Ops))
	}
	for i, op := range m.Ops {
		if int64(op.Details) >= int64(len(details)) {
			return protocol.Batch{}, errMalformed
		}
		b.Ops[i] = protocol.Op{
			Verb: narrow[protocol.Verb](op.Verb), Ticket: protocol.Ticket(op.Ticket), Lease: protocol.Seq(op.Lease),
			Weight: bounded(op.Weight), Least: bounded(op.Least), Wait: protocol.Micros(op.Wait),
			Try: op.Try, Pooled: op.Pooled, Details: details[op.Details],
		}
	}
	return b, nil
}

// bounded returns a weight that stores can add to others without overflow. A larger
// weight can never be granted, and is rejected in the same way.
func bounded(weight int64) int64 { return min(weight, protocol.MaxCapacity+1) }

// narrow converts the number of an enum to the type of the protocol. It returns 255 for a
// number that does not fit, so that a number of a later version does not become a known
// one.
func narrow[T ~uint8, E ~int32](number E) T {
	if number < 0 || number > 255 {
		return 255
	}
	return T(number)
}

// ReplyOf returns the message for a reply.
func ReplyOf(r protocol.Reply) *semav1.StoreApplyResponse {
	m := &semav1.StoreApplyResponse{
		Status: semav1.Status(r.Status), More: r.More, Next: int64(r.Next), Recall: r.Recall, Config: ConfigOf(r.Config),
		InUse: r.InUse, Wanted: r.Wanted, First: r.First, Share: r.Share, Valid: int64(r.Valid), Undecided: int64(r.Undecided), Results: make([]*semav1.Result, len(r.Results)),
	}
	results := make([]semav1.Result, len(r.Results))
	var last []protocol.Range
	for i, f := range r.Results {
		to := &results[i]
		to.N, to.Kind, to.Ticket, to.Lease, to.Weight = f.N, semav1.ResultKind(f.Kind), uint64(f.Ticket), uint64(f.Lease), f.Weight
		to.Slots = string(f.Slots)
		if f.Note != "" {
			to.Note = []byte(f.Note)
		}
		if f.Fence.Seq != 0 {
			to.Fence = packFence(f.Fence, last)
			last = f.Fence.Revoked
		}
		m.Results[i] = to
	}
	return m
}

// ReadReply returns the reply in a message.
func ReadReply(m *semav1.StoreApplyResponse) (protocol.Reply, error) {
	r := protocol.Reply{
		Status: narrow[protocol.Status](m.Status), More: m.More, Next: protocol.Micros(m.Next), Recall: m.Recall, Config: ReadConfig(m.Config),
		InUse: m.InUse, Wanted: m.Wanted, First: m.First, Share: m.Share, Valid: protocol.Micros(m.Valid), Undecided: protocol.Micros(m.Undecided),
	}
	if len(m.Results) > 0 {
		r.Results = make([]protocol.Result, len(m.Results))
	}
	var last []protocol.Range
	for i, f := range m.Results {
		r.Results[i] = protocol.Result{
			N: f.N, Kind: narrow[protocol.ResultKind](f.Kind), Ticket: protocol.Ticket(f.Ticket),
			Lease: protocol.Seq(f.Lease), Weight: f.Weight, Slots: protocol.Slots(f.Slots), Note: string(f.Note),
		}
		if f.Fence == nil {
			continue
		}
		var err error
		if r.Results[i].Fence, last, err = unpackFence(f.Fence, last); err != nil {
			return protocol.Reply{}, err
		}
	}
	return r, nil
}

// packFence returns the difference between a fence and the one before it, whose ranges
// are last. A reply may contain hundreds of fences. With a thousand leases, each of them
// has hundreds of ranges, which are almost the same in all fences.
func packFence(f protocol.Fence, last []protocol.Range) *semav1.PackedFence {
	shared := commonLength(f.Revoked, last)
	m := &semav1.PackedFence{Seq: uint64(f.Seq), Floor: uint64(f.Floor), Exact: f.Exact, Shared: uint32(shared)}
	if shared == len(f.Revoked) {
		return m
	}
	m.Revoked = make([]uint64, 0, 2*(len(f.Revoked)-shared))
	end := endOf(f.Revoked[:shared])
	for _, r := range f.Revoked[shared:] {
		m.Revoked = append(m.Revoked, uint64(r.From-end), uint64(r.To-r.From))
		end = r.To
	}
	return m
}

// commonLength returns the length of the common prefix of a and b. Ranges of one reply
// mostly share memory, and then no comparison is needed.
func commonLength(a, b []protocol.Range) int {
	n := min(len(a), len(b))
	if n > 0 && &a[0] == &b[0] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func endOf(ranges []protocol.Range) protocol.Seq {
	if len(ranges) == 0 {
		return 0
	}
	return ranges[len(ranges)-1].To
}

// unpackFence returns the fence in a message, and its ranges for the next fence to share.
// The fences of a reply share memory if possible. Appending to the ranges of one does not
// write to those of another.
func unpackFence(m *semav1.PackedFence, last []protocol.Range) (f protocol.Fence, ranges []protocol.Range, err error) {
	f = protocol.Fence{Seq: protocol.Seq(m.Seq), Floor: protocol.Seq(m.Floor), Exact: m.Exact}
	shared := int64(m.Shared)
	if shared > int64(len(last)) || len(m.Revoked)%2 != 0 {
		return f, nil, errMalformed
	}
	ranges = last[:shared]
	if shared < int64(len(last)) {
		ranges = last[:shared:shared] // the elements after these belong to the fence before
	}
	end := endOf(ranges)
	for i := 0; i < len(m.Revoked); i += 2 {
		from := end + protocol.Seq(m.Revoked[i])
		end = from + protocol.Seq(m.Revoked[i+1])
		ranges = append(ranges, protocol.Range{From: from, To: end})
	}
	if len(ranges) > 0 {
		f.Revoked = ranges[:len(ranges):len(ranges)]
	}
	return f, ranges, nil
}
