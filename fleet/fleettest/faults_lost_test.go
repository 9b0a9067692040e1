package fleettest_test

import (
	"github.com/sema-go/sema/fleet/protocol"
)

// lostFaults are stores that lose data and go on, like a server that restarts from a snapshot, or
// from nothing, without a quarantine.
var lostFaults = []fault{
	{"an old snapshot is restored", "behaves like the model", func() *faultyStore {
		saved := map[string]protocol.Image{}
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			if old, ok := saved[name]; ok && b.Seq%5 == 0 {
				s.editLocked(name, func(im *protocol.Image) { *im = old })
			}
			r := s.applyLocked(name, b)
			if _, ok := saved[name]; !ok {
				saved[name] = s.semaphores[name].Image()
			}
			return r
		}}
	}},
	{"all data is lost", "concurrent calls are linearizable", func() *faultyStore {
		batches := 0
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			if batches++; batches%7 == 0 {
				s.editLocked(name, func(im *protocol.Image) { im.Sessions, im.Leases, im.Queue, im.Spent = nil, nil, nil, nil })
			}
			return s.applyLocked(name, b)
		}}
	}},
}
