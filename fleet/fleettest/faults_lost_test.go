package fleettest_test

import (
	"github.com/sema-go/sema/fleet/protocol"
)

// lostFaults are stores that lose data and go on as if nothing had happened, as a server
// does that restarts from a snapshot, or from nothing, without a quarantine.
var lostFaults = []fault{
	{"an old snapshot comes back", "behaves like the model", func() *sick {
		saved := map[string]protocol.Image{}
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			if old, ok := saved[name]; ok && b.Seq%5 == 0 {
				s.operate(name, func(im *protocol.Image) { *im = old })
			}
			r := s.apply(name, b)
			if _, ok := saved[name]; !ok {
				saved[name] = s.semaphores[name].Image()
			}
			return r
		}}
	}},
	{"everything is forgotten", "concurrent calls are as if one after the other", func() *sick {
		batches := 0
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			if batches++; batches%7 == 0 {
				s.operate(name, func(im *protocol.Image) { im.Sessions, im.Leases, im.Queue, im.Spent = nil, nil, nil, nil })
			}
			return s.apply(name, b)
		}}
	}},
}
