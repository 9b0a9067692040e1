package growth

import (
	"fmt"
	"sync"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest"
)

// sessionCurves returns the curves of what a store keeps for sessions. They call the store
// without a client, so that what is measured is the store's part alone.
func sessionCurves(s *storetest.Scope) []curve {
	memory := func(name, title, size string, sizes []int, add func(o *opened, n int)) curve {
		return curve{name: name, title: title, size: size, unit: "bytes", limit: flat,
			runs: inStores(s, sizes, func(o *opened, n int) float64 { return occupiedBy(o, n, add) })[1:]}
	}
	return []curve{
		{name: "heartbeat-semaphores", title: "A heartbeat, other semaphores in the store", size: "semaphores", unit: "µs", limit: flat,
			runs: inStores(s, tenfold(10, 100_000), func(o *opened, n int) float64 { fill(o, n); return openSession(o, "x", 1).heartbeat() })},
		{name: "heartbeat-leases", title: "A heartbeat of a session that holds leases", size: "leases", unit: "µs", limit: flat,
			note: "A heartbeat renews the session, and with it all of its leases.",
			runs: inStores(s, tenfold(1, 10_000), func(o *opened, n int) float64 {
				session := openSession(o, "x", 100_000)
				session.acquire(n)
				return session.heartbeat()
			})},
		memory("semaphore-memory", "What a semaphore occupies in the store", "semaphores", tenfold(1000, 100_000), fill),
		memory("session-memory", "What a session occupies in the store", "sessions", tenfold(100, 10_000), func(o *opened, n int) {
			together(n, func(int) { openSession(o, "x", 1) })
		}),
		memory("lease-memory", "What a lease occupies in the store", "leases", tenfold(100, 10_000), func(o *opened, n int) {
			openSession(o, "x", 100_000).acquire(n)
		}),
		memory("waiter-memory", "What a waiter occupies in the store", "waiters", tenfold(100, 100_000), func(o *opened, n int) {
			openSession(o, "x", 1).acquire(1 + n)
		}),
	}
}

// occupiedBy returns what each of n things occupies that add adds to a store.
func occupiedBy(o *opened, n int, add func(o *opened, n int)) float64 {
	openSession(o, "first", 1).acquire(1) // tables and indexes exist
	before := o.used()
	add(o, n)
	return max(0, o.used()-before) / float64(n)
}

// A session sends batches to a store.
type session struct {
	o       *opened
	name    string
	session protocol.Session
	owner   protocol.Owner
	seq     uint64
	ack     uint64 // number of the last result that was received
	tickets protocol.Ticket
}

// openSession opens a session of a client of its own.
func openSession(o *opened, name string, capacity int64) *session {
	by := protocol.Opener{Client: protocol.Client{Instance: fmt.Sprintf("growth-%x", protocol.NewKey())}, Owner: protocol.Owner{Key: protocol.NewKey()}}
	opened, _, err := o.store.Open(background, name, protocol.Config{Capacity: capacity, TTL: hour}, by)
	must(err)
	return &session{o: o, name: name, session: opened, owner: by.Owner}
}

// hour is a TTL in which no session ends.
const hour = protocol.Micros(3600 * 1e6)

// send sends a batch. One without operations is a heartbeat.
func (s *session) send(ops ...protocol.Op) {
	s.seq++
	reply, err := s.o.store.Apply(background, s.name, protocol.Batch{Session: s.session, Owner: s.owner, Seq: s.seq, Ack: s.ack, Ops: ops})
	must(err)
	for _, r := range reply.Results {
		s.ack = r.N
	}
}

// heartbeat returns the time of a heartbeat.
func (s *session) heartbeat() float64 {
	s.send()
	return medianTime(200, func() { s.send() })
}

// acquire acquires n leases. Those that are not free are queued.
func (s *session) acquire(n int) {
	const batch = 500
	for n > 0 {
		var ops []protocol.Op
		for range min(n, batch) {
			s.tickets++
			ops = append(ops, protocol.Op{Verb: protocol.Acquire, Ticket: s.tickets, Weight: 1})
		}
		s.send(ops...)
		n -= len(ops)
	}
	s.send() // acknowledges the last results, as the next batch of a client does
}

// together calls do for each number below n, by 64 goroutines.
func together(n int, do func(i int)) {
	const goroutines = 64
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for k := i; k < n; k += goroutines {
				do(k)
			}
		})
	}
	all.Wait()
}
