// Package wire turns what package fleet says to an engine into messages of
// sema.v1, and back, errors included. Both ends use it: what one of them writes
// the other reads, and nothing is lost on the way.
package wire

import (
	"errors"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// errUnread is for messages of a version that is too new, or of somebody else.
var errUnread = errors.New("a message cannot be read; are service and program of neighbouring versions?")

// BatchOf returns the message for a batch. The owner's principal is left out: the
// server that authenticates the client adds it.
func BatchOf(name string, b protocol.Batch) *semav1.StoreApplyRequest {
	m := &semav1.StoreApplyRequest{
		Name: name, Session: uint64(b.Session), Key: b.Owner.Key[:], Seq: b.Seq, Ack: b.Ack, End: b.End, Highest: uint64(b.Highest),
		Ops: make([]*semav1.Op, len(b.Ops)),
	}
	ops := make([]semav1.Op, len(b.Ops)) // all at once
	var last protocol.Details
	for i, op := range b.Ops {
		to := &ops[i]
		to.Verb, to.Ticket, to.Lease = semav1.Verb(op.Verb), uint64(op.Ticket), uint64(op.Lease)
		to.Weight, to.Least, to.Wait, to.Try, to.Pooled = op.Weight, op.Least, int64(op.Wait), op.Try, op.Pooled
		if op.Details != (protocol.Details{}) {
			if op.Details != last {
				last = op.Details
				m.Details = append(m.Details, detailsOf(last))
			}
			to.Details = uint32(len(m.Details))
		}
		m.Ops[i] = to
	}
	return m
}

// ReadBatch is the batch in a message.
func ReadBatch(m *semav1.StoreApplyRequest) (protocol.Batch, error) {
	b := protocol.Batch{Session: protocol.Session(m.Session), Seq: m.Seq, Ack: m.Ack, End: m.End, Highest: protocol.Seq(m.Highest)}
	copy(b.Owner.Key[:], m.Key)
	details := make([]protocol.Details, 1+len(m.Details)) // which most ops share
	for i, one := range m.Details {
		details[i+1] = readDetails(one)
	}
	if len(m.Ops) > 0 {
		b.Ops = make([]protocol.Op, len(m.Ops))
	}
	for i, op := range m.Ops {
		if int64(op.Details) >= int64(len(details)) {
			return protocol.Batch{}, errUnread
		}
		b.Ops[i] = protocol.Op{
			Verb: narrow[protocol.Verb](op.Verb), Ticket: protocol.Ticket(op.Ticket), Lease: protocol.Seq(op.Lease),
			Weight: bounded(op.Weight), Least: bounded(op.Least), Wait: protocol.Micros(op.Wait),
			Try: op.Try, Pooled: op.Pooled, Details: details[op.Details],
		}
	}
	return b, nil
}

// bounded is a weight that engines can add to others. What is larger than that
// can never be granted either, and is refused in the same way.
func bounded(weight int64) int64 { return min(weight, protocol.MaxCapacity+1) }

// narrow is the number of an enum as the protocol has it. One that does not fit
// is of the future, and is not to be taken for one that is known.
func narrow[T ~uint8, E ~int32](number E) T {
	if number < 0 || number > 255 {
		return 255
	}
	return T(number)
}

// ReplyOf is the message for a reply.
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

// ReadReply is the reply in a message.
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
