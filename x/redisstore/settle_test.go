package redisstore

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// calls returns the number of times that the server has run a command.
func calls(t *testing.T, server *redistest.Server, command string) int {
	t.Helper()
	found := regexp.MustCompile("cmdstat_" + command + `:calls=(\d+)`).FindStringSubmatch(server.Must("INFO", "commandstats"))
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStore_SettleFindsAGrantAmongMany checks that a settlement finds its grant of a rate
// by Seq, without a scan, even if Seqs have gaps.
func TestStore_SettleFindsAGrantAmongMany(t *testing.T) {
	t.Parallel()
	const grants = 1000
	for _, c := range []struct {
		name  string
		leaps bool // whether Seqs have gaps between grants
		reads int  // maximum number of reads of the list for each settlement
	}{{"Seqs without gaps", false, 1}, {"Seqs with gaps", true, 11}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			s := sessiontest.Begin(t, openServer(t, server), "rate", protocol.Config{Kind: protocol.Rate, Capacity: 10 * grants, Window: protocol.Micros(time.Hour / time.Microsecond)})
			var leases []protocol.Seq
			for n := range protocol.Ticket(grants) {
				b := s.Next(sessiontest.Acquire(n+1, 2))
				if c.leaps && n > 0 {
					b.Highest = leases[n-1] + protocol.Seq(rand.IntN(100))
				}
				r, err := s.Store.Apply(ctx, "rate", b)
				if err != nil || len(r.Results) != 1 || r.Results[0].Kind != protocol.Granted {
					t.Fatal(r, err)
				}
				leases = append(leases, s.Receive(r).Results[0].Lease)
			}
			before := calls(t, server, "lindex")
			inUse := int64(2 * grants)
			for _, i := range rand.Perm(grants)[:100] {
				inUse -= 2
				if r := s.Send(protocol.Op{Verb: protocol.Settle, Lease: leases[i], Least: 2}); r.InUse != inUse {
					t.Fatalf("%d in use after grant %d was settled at 0, want %d", r.InUse, i, inUse)
				}
			}
			if n := calls(t, server, "lindex") - before; n > 100*c.reads {
				t.Errorf("100 settlements have read %d entries, want at most %d", n, 100*c.reads)
			}
			if n := calls(t, server, "lrange"); n > 2*(grants+100) { // each call reads the grants that have left the window
				t.Errorf("%d reads of ranges of the list", n)
			}
		})
	}
}
