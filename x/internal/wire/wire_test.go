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

// pass is a message after its journey.
func pass[M proto.Message](t *testing.T, m, into M) M {
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

func check(t *testing.T, arrives any) {
	t.Helper()
	if err := quick.Check(arrives, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

const odd = "\xff\x00 not UTF-8"

func TestBatchesArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	check(t, func(b protocol.Batch, name uint8) bool {
		b.Owner.Principal = "" // which the server adds
		for i := range b.Ops {
			op := &b.Ops[i]
			op.Weight, op.Least = bounded(op.Weight), bounded(op.Least)
			if i%3 > 0 {
				op.Details = b.Ops[0].Details // as most have
			} else if i == 6 {
				op.Details.Holder = odd
			}
		}
		if len(b.Ops) == 0 {
			b.Ops = nil
		}
		got, err := ReadBatch(pass(t, BatchOf("a", b), &semav1.StoreApplyRequest{}))
		return err == nil && reflect.DeepEqual(got, b)
	})
}

func TestRepliesArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	check(t, func(r protocol.Reply, share []uint8) bool {
		if len(r.Results) == 0 {
			r.Results = nil
		}
		for i := range r.Results {
			f := &r.Results[i].Fence
			f.Seq |= 1 // one of 0 is none
			if i > 0 && i-1 < len(share) {
				// As a model would say it: part of the one before, and more.
				before := r.Results[i-1].Fence.Revoked
				n := min(len(before), int(share[i-1])%64)
				f.Revoked = append(before[:n:n], f.Revoked...)
			}
			if len(f.Revoked) == 0 {
				f.Revoked = nil
			}
			if i == 3 {
				r.Results[i].Note = odd
			}
		}
		got, err := ReadReply(pass(t, ReplyOf(r), &semav1.StoreApplyResponse{}))
		return err == nil && reflect.DeepEqual(got, r)
	})
}

// TestFencesThatShareMemoryDoNotWriteToEachOther: who appends to one does not
// change the next.
func TestFencesThatShareMemoryDoNotWriteToEachOther(t *testing.T) {
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
		t.Errorf("%d ranges are sent, want %d: each once", ranges, len(gone))
	}
	got, err := ReadReply(pass(t, m, &semav1.StoreApplyResponse{}))
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

func TestSnapshotsArriveAsTheyWere(t *testing.T) {
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
			s.Queue[0].Details.Holder = odd
		}
		got := ReadSnapshot(pass(t, SnapshotOf(s), &semav1.StoreInspectResponse{}))
		for i := range s.Sessions {
			s.Sessions[i].Owner.Key = protocol.Key{} // which no reader must have
		}
		return reflect.DeepEqual(got, s)
	})
}

func TestCommandsArriveAsTheyWere(t *testing.T) {
	t.Parallel()
	check(t, func(c protocol.Config, r fleet.Revocation) bool {
		r.Why += odd
		for _, command := range []fleet.Command{{Configure: &c}, {Revoke: &r}, {Delete: true}} {
			got, known := ReadCommand(pass(t, CommandOf("a", command), &semav1.StoreAdministerRequest{}))
			if !known || !reflect.DeepEqual(got, command) {
				return false
			}
		}
		return true
	})
	if _, known := ReadCommand(&semav1.StoreAdministerRequest{Name: "a"}); known {
		t.Error("no command is one")
	}
}

// TestWhatIsOfTheFutureIsNotTakenForSomethingElse: 257 is not 1.
func TestWhatIsOfTheFutureIsNotTakenForSomethingElse(t *testing.T) {
	t.Parallel()
	for _, number := range []int32{-1, 256, 257, math.MaxInt32, math.MinInt32} {
		if got := narrow[protocol.Verb](semav1.Verb(number)); got != 255 {
			t.Errorf("%d is %d", number, got)
		}
	}
	b, err := ReadBatch(&semav1.StoreApplyRequest{Ops: []*semav1.Op{{Verb: 1, Weight: math.MaxInt64}, {Verb: 1, Weight: math.MinInt64}}})
	if err != nil || b.Ops[0].Weight != protocol.MaxCapacity+1 || b.Ops[1].Weight >= 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

func TestMessagesThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := ReadBatch(&semav1.StoreApplyRequest{Ops: []*semav1.Op{{Details: 2}}, Details: []*semav1.Details{nil}}); !errors.Is(err, errUnread) {
		t.Error(err)
	}
	for _, fence := range []*semav1.PackedFence{{Shared: 1}, {Shared: math.MaxUint32}, {Revoked: []uint64{1}}} {
		if _, err := ReadReply(&semav1.StoreApplyResponse{Results: []*semav1.Result{{Fence: fence}}}); !errors.Is(err, errUnread) {
			t.Errorf("%v: %v", fence, err)
		}
	}
}
