package wire

import (
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// packFence says how a fence differs from the one before it, which had those
// ranges. A semaphore with a thousand leases has hundreds of them, in each of the
// hundreds of fences of a reply, and they are almost the same.
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

// commonLength is with how many ranges both begin. Those of one reply are mostly
// parts of the same memory.
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

// unpackFence is the fence in a message, and its ranges for the next one to share.
// All of a reply are in the same memory where they can be, and who appends to one
// does not write to another.
func unpackFence(m *semav1.PackedFence, last []protocol.Range) (f protocol.Fence, ranges []protocol.Range, err error) {
	f = protocol.Fence{Seq: protocol.Seq(m.Seq), Floor: protocol.Seq(m.Floor), Exact: m.Exact}
	shared := int64(m.Shared)
	if shared > int64(len(last)) || len(m.Revoked)%2 != 0 {
		return f, nil, errUnread
	}
	ranges = last[:shared]
	if shared < int64(len(last)) {
		ranges = last[:shared:shared] // what follows is the other's
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
