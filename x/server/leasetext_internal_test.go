package server

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// TestLeaseText_AppendsWhatMarshalWrites compares random leases with encoding/json.
func TestLeaseText_AppendsWhatMarshalWrites(t *testing.T) {
	t.Parallel()
	some := func(n uint64) uint64 { return rand.N(n+1) * rand.N[uint64](2) } // often 0
	for range 2000 {
		l := leasing.Lease{
			Semaphore: []string{"bench", `a"b\c`, "a<b>&c", "ü", "\x01", "a\xffb"}[rand.N(6)], Weight: rand.Int64(),
			TTL: time.Duration(some(1 << 50)), Left: time.Duration(some(1 << 50)),
		}
		if rand.N(4) > 0 {
			l.ID = "12.3.abcdef"
			l.Fence = protocol.Fence{Seq: protocol.Seq(rand.Uint64()), Floor: protocol.Seq(some(1 << 40)), Exact: rand.N(2) == 0}
			for range rand.N(3) {
				l.Fence.Revoked = append(l.Fence.Revoked, protocol.Range{From: protocol.Seq(some(99)), To: protocol.Seq(rand.Uint64())})
			}
		}
		l.Slots = []protocol.Slots{"", "0", "0-3,7"}[rand.N(3)]
		want, err := json.Marshal(newLeaseText(l))
		if err != nil {
			t.Fatal(err)
		}
		if got := newLeaseText(l).append(nil); string(got) != string(want) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}
