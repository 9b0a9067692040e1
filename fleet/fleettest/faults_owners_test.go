package fleettest_test

import (
	"github.com/sema-go/sema/fleet/protocol"
)

var ownerFaults = []fault{
	{"keys are not compared", "a batch with another key is of an unknown session", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			s.editLocked(name, func(im *protocol.Image) {
				for i := range im.Sessions {
					if im.Sessions[i].ID == b.Session {
						im.Sessions[i].Owner.Key = b.Owner.Key
					}
				}
			})
			return s.applyLocked(name, b)
		}}
	}},
	{"principals are not compared", "a batch of another principal is of an unknown session", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			s.editLocked(name, func(im *protocol.Image) {
				for i := range im.Sessions {
					if im.Sessions[i].ID == b.Session {
						im.Sessions[i].Owner.Principal = b.Owner.Principal
					}
				}
			})
			return s.applyLocked(name, b)
		}}
	}},
	{"what clients report is ignored", "Seqs are higher than what a client reports", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Highest = 0
			return s.applyLocked(name, b)
		}}
	}},
	{"what clients report has no bound", "Seqs are higher than what a client reports", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			s.editLocked(name, func(im *protocol.Image) { im.LastSeq = max(im.LastSeq, b.Highest) })
			return s.applyLocked(name, b)
		}}
	}},
}
