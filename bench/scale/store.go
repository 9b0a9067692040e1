package main

import "github.com/sema-go/sema/fleet/protocol"

// A store has one semaphore, the real [protocol.State], and counts its
// requests. It takes no time to reply: the counts are the load that a real
// store would have to handle.
type store struct {
	world  *world
	state  *protocol.State
	config protocol.Config
	region *region // its region; nil for the global store

	first       protocol.Session // the first session; sessions are numbered consecutively
	links       []int32          // of the sessions
	generations []uint32         // of the links when the sessions were opened

	inUse  int64 // as of the last reply
	wanted int64
	counts counts
	delays histogram // from queueing to the arrival of the grant, for tickets that had to wait
}

// counts are the requests to a store and the notifications it sent.
type counts struct {
	batches       int64 // including opens
	ops           int64 // in the batches
	notifications int64
	resizes       int64
}

func newStore(w *world, capacity, whole int64) *store {
	config := protocol.Config{Capacity: capacity, Whole: whole, TTL: w.p.ttl}
	state, err := protocol.New(w.now, config, 0)
	if err != nil {
		panic(err) // the parameters are valid
	}
	config.Version, config.Protocol = 1, protocol.Version
	return &store{world: w, state: state, config: config}
}

// open opens a session and records its link.
func (s *store) open(link int32, generation uint32) (protocol.Session, protocol.Config) {
	session, config, err := s.state.Open(s.world.now, protocol.Opener{}, protocol.Version)
	if err != nil {
		panic(err) // there is only one version
	}
	if s.first == 0 {
		s.first = session
	}
	s.counts.batches++
	s.links, s.generations = append(s.links, link), append(s.generations, generation)
	s.notifyWoken()
	return session, config
}

// apply applies a batch, and lets the region react to the change.
func (s *store) apply(l *link, b protocol.Batch) protocol.Reply {
	s.counts.batches++
	s.counts.ops += int64(len(b.Ops))
	for _, op := range b.Ops {
		if op.Verb == protocol.Acquire {
			l.since = s.world.now
		}
	}
	reply := s.state.Apply(s.world.now, b)
	s.inUse, s.wanted = reply.InUse, reply.Wanted
	s.notifyWoken()
	if s.region != nil {
		reply.Valid = s.region.valid()
		s.region.review()
	}
	return reply
}

// resize sets the capacity.
func (s *store) resize(capacity int64) {
	if s.config.Capacity == capacity {
		return
	}
	config := s.config
	config.Capacity = capacity
	changed, err := s.state.Configure(s.world.now, config)
	if err != nil {
		panic(err) // there is no concurrent change
	}
	s.config = changed
	s.counts.resizes++
	// A batch without a session is rejected. The rejection contains how much is
	// in use.
	reply := s.state.Apply(s.world.now, protocol.Batch{})
	s.inUse, s.wanted = reply.InUse, reply.Wanted
	s.notifyWoken()
}

// notifyWoken sends a notification to each woken session.
func (s *store) notifyWoken() {
	for _, session := range s.state.Woken() {
		i := session - s.first
		id := s.links[i]
		if l := &s.world.links[id]; !l.cut {
			s.counts.notifications++
			s.world.schedule(event{at: s.world.now + s.world.delay(l), kind: notified, index: id, generation: s.generations[i]})
		}
	}
}
