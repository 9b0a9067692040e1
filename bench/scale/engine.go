package main

import "github.com/sema-go/sema/fleet/protocol"

// An engine has one semaphore, the real [protocol.State], and counts what it is
// asked. It takes no time to answer: what is counted is what a real one would
// have to keep up with.
type engine struct {
	world  *world
	state  *protocol.State
	config protocol.Config
	region *region // whose it is; nil for the global one

	first protocol.Session // of all sessions, which are numbered one by one
	links []int32          // of the sessions
	lives []uint32         // in which they were opened

	inUse  int64 // as of the last answer
	wanted int64
	counts counts
	delays histogram // from standing in line to having the grant, of those who had to wait
}

// counts are what an engine was asked, and said by itself.
type counts struct {
	batches int64 // opens included
	wishes  int64 // in them
	hints   int64
	resizes int64
}

func newEngine(w *world, capacity, whole int64) *engine {
	config := protocol.Config{Capacity: capacity, Whole: whole, TTL: w.p.ttl}
	state, err := protocol.New(w.now, config, 0)
	if err != nil {
		panic(err) // the parameters are ours
	}
	config.Version, config.Protocol = 1, protocol.Version
	return &engine{world: w, state: state, config: config}
}

// open numbers a session, and notes whose it is.
func (e *engine) open(link int32, life uint32) (protocol.Session, protocol.Config) {
	session, config, err := e.state.Open(e.world.now, protocol.Opener{}, protocol.Version)
	if err != nil {
		panic(err) // there is one version
	}
	if e.first == 0 {
		e.first = session
	}
	e.counts.batches++
	e.links, e.lives = append(e.links, link), append(e.lives, life)
	e.tell()
	return session, config
}

// apply is a batch. What it has changed may be the region's business as well.
func (e *engine) apply(l *link, b protocol.Batch) protocol.Reply {
	e.counts.batches++
	e.counts.wishes += int64(len(b.Ops))
	for _, op := range b.Ops {
		if op.Verb == protocol.Acquire {
			l.since = e.world.now
		}
	}
	reply := e.state.Apply(e.world.now, b)
	e.inUse, e.wanted = reply.InUse, reply.Wanted
	e.tell()
	if e.region != nil {
		reply.Valid = e.region.valid()
		e.region.review()
	}
	return reply
}

// resize sets the capacity.
func (e *engine) resize(capacity int64) {
	if e.config.Capacity == capacity {
		return
	}
	config := e.config
	config.Capacity = capacity
	changed, err := e.state.Configure(e.world.now, config)
	if err != nil {
		panic(err) // nobody else changes it
	}
	e.config = changed
	e.counts.resizes++
	// A batch of nobody is refused, and the refusal says how much is in use.
	refusal := e.state.Apply(e.world.now, protocol.Batch{})
	e.inUse, e.wanted = refusal.InUse, refusal.Wanted
	e.tell()
}

// tell hints to those who have news.
func (e *engine) tell() {
	for _, session := range e.state.Woken() {
		i := session - e.first
		id := e.links[i]
		if l := &e.world.links[id]; !l.cut {
			e.counts.hints++
			e.world.file(event{at: e.world.now + e.world.delay(l), kind: hinted, who: id, life: e.lives[i]})
		}
	}
}
