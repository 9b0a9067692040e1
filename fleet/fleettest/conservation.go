package fleettest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// conservationScripts check the sums under concurrent random load.
var conservationScripts = []script{
	{"permits are conserved under concurrent random load", protocol.Config{Capacity: 7}, func(s *client) {
		const callers = 12
		errs := make(chan error, callers)
		var wg sync.WaitGroup
		stop := time.Now().Add(5 * time.Second) // for slow stores
		for range callers {
			id := s.open()
			wg.Go(func() { errs <- s.sendRandomBatches(id, 200, stop) })
		}
		done := make(chan struct{})
		go func() {
			wg.Wait()
			close(done)
		}()
		for over := false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			s.wantConsistent(s.inspect())
		}
		close(errs)
		for err := range errs {
			s.must(err)
		}
		s.wantInUse(0, 0)
	}},
}

// wantConsistent fails unless the sum of the leases is what is in use and at most the capacity.
func (s *client) wantConsistent(snapshot protocol.Snapshot) {
	sum := int64(0)
	for _, l := range snapshot.Leases {
		sum += l.Weight
	}
	if sum != snapshot.InUse || sum > snapshot.Effective {
		s.fail("%d in use of %d, %d leased", snapshot.InUse, snapshot.Effective, sum)
	}
}

// sendRandomBatches sends random acquires, cancels, splits, releases and repeated batches. At the end it
// releases everything.
func (s *client) sendRandomBatches(id protocol.Session, batches int, stop time.Time) error {
	held := map[protocol.Seq]int64{}
	ticket := protocol.Ticket(0)
	acked := uint64(0)
	waiting := map[protocol.Ticket]bool{}
	for n := 0; ; n++ {
		closing := n >= batches || time.Now().After(stop)
		b := protocol.Batch{Session: id, Owner: owner, Seq: uint64(n + 1), Ack: acked}
		for lease, weight := range held {
			switch how := rand.IntN(4); {
			case closing || how == 0:
				b.Ops = append(b.Ops, release(lease))
				delete(held, lease)
			case how == 1 && weight > 1:
				ticket++
				waiting[ticket] = true
				b.Ops = append(b.Ops, split(ticket, lease, 1))
				held[lease]--
			}
		}
		for t := range waiting {
			if closing || rand.IntN(3) == 0 {
				b.Ops = append(b.Ops, cancel(t))
				delete(waiting, t)
			}
		}
		for range rand.IntN(3) {
			if closing {
				break
			}
			ticket++
			waiting[ticket] = true
			b.Ops = append(b.Ops, acquire(ticket, 1+rand.Int64N(4)))
		}
		reply, err := s.store.Apply(s.ctx, s.name, b)
		if err == nil && rand.IntN(4) == 0 { // as if the reply were lost
			reply, err = s.store.Apply(s.ctx, s.name, b)
		}
		switch {
		case err != nil:
			return err
		case n > 2*batches:
			return fmt.Errorf("still results after %d batches, although nothing is requested any more", n)
		case reply.Status > protocol.Repeated:
			return fmt.Errorf("status %d", reply.Status)
		case reply.InUse > reply.Config.Capacity:
			return fmt.Errorf("%d in use of %d", reply.InUse, reply.Config.Capacity)
		case closing && len(b.Ops) == 0 && len(reply.Results) == 0:
			return nil
		}
		for _, f := range reply.Results {
			if f.N <= acked {
				continue
			}
			acked = f.N
			if f.Kind == protocol.Granted {
				held[f.Lease] = f.Weight
			}
			delete(waiting, f.Ticket)
		}
	}
}
