package fleettest

import (
	"errors"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// fenceScripts check that fences separate the holders that may write from those that may not.
var fenceScripts = []script{
	{"fences rise and list the leases that ended in between", protocol.Config{Capacity: 4}, func(s *client) {
		id := s.open()
		leases := s.granted(id, 3, acquire(1, 1), acquire(2, 1), acquire(3, 1))
		s.send(id, release(leases[1]))
		f := s.fence(id, acquire(4, 1))
		if f.Seq <= leases[2] || f.Floor != leases[0] || !revokes(f, leases[1]) || revokes(f, leases[0]) || revokes(f, leases[2]) {
			s.fail("%+v after leases %v, of which the second was released", f, leases)
		}
	}},
	{"fences list many leases that ended in between", protocol.Config{Capacity: 200}, func(s *client) {
		id := s.open()
		var ops []protocol.Op
		for i := range protocol.Ticket(100) {
			ops = append(ops, acquire(i+1, 1))
		}
		leases := s.granted(id, len(ops), ops...)
		ops = ops[:0]
		for i := 1; i < len(leases); i += 2 {
			ops = append(ops, release(leases[i]))
		}
		s.send(id, ops...)
		for _, f := range s.wantResults(s.send(id, acquire(101, 1), acquire(102, 1), acquire(103, 1)), protocol.Granted, protocol.Granted, protocol.Granted) {
			for i, lease := range leases {
				if gone := i%2 == 1; revokes(f.Fence, lease) != gone {
					s.fail("%+v: lease %d is revoked: %t, want %t", f.Fence, lease, !gone, gone)
				}
			}
		}
	}},
	{"a repeated result has a current fence", protocol.Config{Capacity: 3}, func(s *client) {
		id, other := s.open(), s.open()
		leases := s.granted(other, 2, acquire(1, 1), acquire(2, 1))
		b := protocol.Batch{Session: id, Seq: 1, Ops: []protocol.Op{acquire(1, 1)}}
		s.wantResults(s.apply(b), protocol.Granted)
		s.send(other, release(leases[1]))
		if f := s.wantResults(s.apply(b), protocol.Granted)[0].Fence; f.Floor != leases[0] || !revokes(f, leases[1]) {
			s.fail("%+v after leases %v, of which the second was released", f, leases)
		}
		s.send(other, release(leases[0]))
		if f := s.wantResults(s.apply(b), protocol.Granted)[0].Fence; f.Floor != f.Seq {
			s.fail("%+v, want its own Seq as the floor: there is no other lease", f)
		}
	}},
	{"a guard rejects ended leases and admits live ones", protocol.Config{Capacity: 3}, func(s *client) {
		var guard fleet.Guard
		first, second, third := s.open(), s.open(), s.open()
		a, b := s.fence(first, acquire(1, 1)), s.fence(second, acquire(1, 1))
		s.wantAdmitted(&guard, a, b)
		s.send(second, release(b.Seq))
		c := s.fence(third, acquire(1, 1))
		s.wantAdmitted(&guard, c, a, c)
		s.wantRejected(&guard, b)
		s.send(first, release(a.Seq))
		d := s.fence(second, acquire(2, 1))
		s.wantAdmitted(&guard, d, c, d)
		s.wantRejected(&guard, a, b)
	}},
	{"a lease that was split has two fences", protocol.Config{Capacity: 4}, func(s *client) {
		var guard fleet.Guard
		id := s.open()
		whole := s.fence(id, acquire(1, 4))
		part := s.fence(id, split(2, whole.Seq, 1))
		if part.Seq <= whole.Seq {
			s.fail("lease %d was split off lease %d", part.Seq, whole.Seq)
		}
		s.wantAdmitted(&guard, part, whole)
		s.send(id, release(whole.Seq))
		next := s.fence(id, acquire(3, 3))
		s.wantAdmitted(&guard, next, part)
		s.wantRejected(&guard, whole)
	}},
	{"a guard rejects a revoked lease once it is given up", protocol.Config{Capacity: 2}, func(s *client) {
		var guard fleet.Guard
		id, other := s.open(), s.open()
		a, b := s.fence(id, acquire(1, 1)), s.fence(other, acquire(1, 1))
		s.must(s.revoke(b.Seq, false))
		s.wantAdmitted(&guard, a, b)
		s.wantResults(s.send(other), protocol.Revoked)
		c := s.fence(other, acquire(2, 1))
		s.wantAdmitted(&guard, c, a)
		s.wantRejected(&guard, b)
	}},
}

func (s *client) wantAdmitted(g *fleet.Guard, fences ...protocol.Fence) {
	for _, f := range fences {
		if err := g.Admit(f); err != nil {
			s.fail("live lease %d is rejected: %w", f.Seq, err)
		}
	}
}

func (s *client) wantRejected(g *fleet.Guard, fences ...protocol.Fence) {
	for _, f := range fences {
		if err := g.Admit(f); !errors.Is(err, sema.ErrLost) {
			s.fail("ended lease %d: error %v, want sema.ErrLost", f.Seq, err)
		}
	}
}

func revokes(f protocol.Fence, seq protocol.Seq) bool {
	for _, r := range f.Revoked {
		if r.From <= seq && seq <= r.To {
			return true
		}
	}
	return false
}
