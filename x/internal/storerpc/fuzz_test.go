package storerpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
)

// FuzzBatches checks that the store survives any two batches, and that never more than
// the capacity is in use.
func FuzzBatches(f *testing.F) {
	const capacity = 3
	encode := func(b protocol.Batch) []byte {
		raw, err := proto.Marshal(wire.BatchOf("a", b))
		if err != nil {
			f.Fatal(err)
		}
		return raw
	}
	acquire := protocol.Op{Verb: protocol.Acquire, Ticket: 1, Weight: 2, Details: &protocol.Details{Holder: "me"}}
	f.Add(encode(protocol.Batch{Session: 1, Seq: 1, Ops: []protocol.Op{acquire}}), encode(protocol.Batch{Session: 1, Seq: 2, End: true}))
	f.Add(encode(protocol.Batch{Session: 1, Seq: 9, Ops: []protocol.Op{acquire, {Verb: protocol.Release, Lease: 1}, {Verb: protocol.Cancel, Ticket: 1}}}), []byte("{"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		key := protocol.NewKey()
		s := &service{store: memstore.New()}
		opened, err := s.Open(t.Context(), &semav1.StoreOpenRequest{Name: "a", Key: key[:], Config: wire.ConfigOf(protocol.Config{Capacity: capacity, TTL: 1_000_000, Protocol: protocol.Version})})
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range [][]byte{first, second} {
			var m semav1.StoreApplyRequest
			if proto.Unmarshal(raw, &m) != nil {
				continue
			}
			m.Name = "a"
			if m.Session < 10 { // otherwise the fuzzer would hardly ever guess it
				m.Session, m.Key = opened.Session, key[:]
			}
			_, _ = s.Apply(t.Context(), &m)
		}
		seen, err := s.Inspect(t.Context(), &semav1.StoreInspectRequest{Name: "a"})
		if err != nil || seen.InUse > capacity || seen.InUse < 0 {
			t.Errorf("%v in use, %v", seen.GetInUse(), err)
		}
	})
}
