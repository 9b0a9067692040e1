package wire

import (
	"errors"
	"math"
	"reflect"
	"testing"
	"testing/quick"

	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// roundTrip marshals m and unmarshals it into another message.
func roundTrip[M proto.Message](t *testing.T, m, into M) M {
	t.Helper()
	sent, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(sent, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// check checks a property of random values.
func check(t *testing.T, property any) {
	t.Helper()
	if err := quick.Check(property, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

const notUTF8 = "\xff\x00 not UTF-8"

func TestBatch_RoundTrip(t *testing.T) {
	t.Parallel()
	check(t, func(b protocol.Batch, name uint8) bool {
		b.Owner.Principal = "" // the server adds it
		for i := range b.Ops {
			op := &b.Ops[i]
			op.Weight, op.Least = bounded(op.Weight), bounded(op.Least)
			if i%3 > 0 {
				op.Details = b.Ops[0].Details // most ops share their details
			} else if i == 6 {
				op.Details = &protocol.Details{Holder: notUTF8}
			}
		}
		if len(b.Ops) == 0 {
			b.Ops = nil
		}
		got, err := ReadBatch(roundTrip(t, BatchOf("a", b), &semav1.StoreApplyRequest{}))
		return err == nil && reflect.DeepEqual(got, b)
	})
}

// TestBatch_SharesDetails checks that operations with equal details refer to one copy, in the
// message and after it was read, and that empty details are nil.
func TestBatch_SharesDetails(t *testing.T) {
	t.Parallel()
	acquire := func(site string) protocol.Op {
		return protocol.Op{Verb: protocol.Acquire, Weight: 1, Details: &protocol.Details{Site: site}}
	}
	m := BatchOf("a", protocol.Batch{Ops: []protocol.Op{acquire("a.go:1"), acquire("a.go:1"), {Verb: protocol.Release}, acquire("a.go:1"), acquire("")}})
	if len(m.Details) != 1 {
		t.Errorf("%d details, want 1", len(m.Details))
	}
	m.Details = append(m.Details, &semav1.Details{})
	m.Ops[4].Details = 2
	b, err := ReadBatch(m)
	if err != nil {
		t.Fatal(err)
	}
	if first := b.Ops[0].Details; first == nil || first.Site != "a.go:1" || b.Ops[1].Details != first || b.Ops[3].Details != first {
		t.Errorf("operations have details of their own: %+v", b.Ops)
	}
	if b.Ops[2].Details != nil || b.Ops[4].Details != nil {
		t.Errorf("empty details are not nil: %+v", b.Ops)
	}
}

func TestReply_RoundTrip(t *testing.T) {
	t.Parallel()
	check(t, func(r protocol.Reply, share []uint8) bool {
		if len(r.Results) == 0 {
			r.Results = nil
		}
		for i := range r.Results {
			f := &r.Results[i].Fence
			f.Seq |= 1 // 0 means no fence
			if i > 0 && i-1 < len(share) {
				// As stores return them: a prefix of the ranges before, and more.
				before := r.Results[i-1].Fence.Revoked
				n := min(len(before), int(share[i-1])%64)
				f.Revoked = append(before[:n:n], f.Revoked...)
			}
			if len(f.Revoked) == 0 {
				f.Revoked = nil
			}
			if i == 3 {
				r.Results[i].Note = notUTF8
			}
		}
		got, err := ReadReply(roundTrip(t, ReplyOf(r), &semav1.StoreApplyResponse{}))
		return err == nil && reflect.DeepEqual(got, r)
	})
}

// TestFence_AppendDoesNotChangeOthers checks that appending to the ranges of one fence
// does not change those of the next, although they share memory.
func TestFence_AppendDoesNotChangeOthers(t *testing.T) {
	t.Parallel()
	r := protocol.Reply{Results: make([]protocol.Result, 40)}
	var gone []protocol.Range
	for i := range r.Results {
		gone = append(gone, protocol.Range{From: protocol.Seq(10 * i), To: protocol.Seq(10*i + 1)})
		r.Results[i] = protocol.Result{N: uint64(i), Fence: protocol.Fence{Seq: protocol.Seq(10*i + 2), Revoked: gone[:len(gone):len(gone)]}}
	}
	m := ReplyOf(r)
	ranges := 0
	for _, f := range m.Results {
		ranges += len(f.Fence.Revoked) / 2
	}
	if ranges != len(gone) {
		t.Errorf("%d ranges are sent, want each of %d once", ranges, len(gone))
	}
	got, err := ReadReply(roundTrip(t, m, &semav1.StoreApplyResponse{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range got.Results {
		_ = append(f.Fence.Revoked, protocol.Range{From: math.MaxUint64})
	}
	if !reflect.DeepEqual(got, r) {
		t.Errorf("%+v", got)
	}
}

func TestSnapshot_RoundTrip(t *testing.T) {
	t.Parallel()
	check(t, func(s protocol.Snapshot) bool {
		if len(s.Sessions) == 0 {
			s.Sessions = nil
		}
		if len(s.Leases) == 0 {
			s.Leases = nil
		}
		for i := range s.Leases {
			s.Leases[i].Slots = "0-3,7"
		}
		if len(s.Queue) == 0 {
			s.Queue = nil
		} else {
			s.Queue[0].Details.Holder = notUTF8
		}
		got := ReadSnapshot(roundTrip(t, SnapshotOf(s), &semav1.StoreInspectResponse{}))
		for i := range s.Sessions {
			s.Sessions[i].Owner.Key = protocol.Key{} // never sent to readers
		}
		return reflect.DeepEqual(got, s)
	})
}

func TestCommand_RoundTrip(t *testing.T) {
	t.Parallel()
	check(t, func(c protocol.Config, r fleet.Revocation) bool {
		r.Why += notUTF8
		for _, command := range []fleet.Command{{Configure: &c}, {Revoke: &r}, {Delete: true}} {
			got, known := ReadCommand(roundTrip(t, CommandOf("a", command), &semav1.StoreAdministerRequest{}))
			if !known || !reflect.DeepEqual(got, command) {
				return false
			}
		}
		return true
	})
	if _, known := ReadCommand(&semav1.StoreAdministerRequest{Name: "a"}); known {
		t.Error("a message without a command has one")
	}
}

// TestReadBatch_BoundsNumbers checks that numbers of later versions do not become known
// ones (257 is not 1), and that weights are bounded.
func TestReadBatch_BoundsNumbers(t *testing.T) {
	t.Parallel()
	for _, number := range []int32{-1, 256, 257, math.MaxInt32, math.MinInt32} {
		if got := narrow[protocol.Verb](semav1.Verb(number)); got != 255 {
			t.Errorf("%d was read as %d, want 255", number, got)
		}
	}
	b, err := ReadBatch(&semav1.StoreApplyRequest{Ops: []*semav1.Op{{Verb: 1, Weight: math.MaxInt64}, {Verb: 1, Weight: math.MinInt64}}})
	if err != nil || b.Ops[0].Weight != protocol.MaxCapacity+1 || b.Ops[1].Weight >= 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestRead_RejectsMalformedMessages(t *testing.T) {
	t.Parallel()
	if _, err := ReadBatch(&semav1.StoreApplyRequest{Ops: []*semav1.Op{{Details: 2}}, Details: []*semav1.Details{nil}}); !errors.Is(err, errMalformed) {
		t.Error(err)
	}
	for _, fence := range []*semav1.PackedFence{{Shared: 1}, {Shared: math.MaxUint32}, {Revoked: []uint64{1}}} {
		if _, err := ReadReply(&semav1.StoreApplyResponse{Results: []*semav1.Result{{Fence: fence}}}); !errors.Is(err, errMalformed) {
			t.Errorf("%v: %v", fence, err)
		}
	}
}
