package fleettest_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

var wakeFaults = []fault{
	{"wake-ups are lost", "the one who won is told, and nobody else", func() *sick {
		return &sick{hint: func([]string, []string) []string { return nil }}
	}},
	{"everybody is woken", "the one who won is told, and nobody else", func() *sick {
		return &sick{hint: func(told, all []string) []string {
			if len(told) == 0 {
				return nil
			}
			return all
		}}
	}},
	{"a death wakes nobody", "whose turn comes by a death is told", func() *sick {
		releases := false
		return &sick{
			hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
				releases = slices.ContainsFunc(b.Ops, func(op protocol.Op) bool { return op.Verb == protocol.Release })
				return s.apply(name, b)
			},
			hint: func(told, _ []string) []string {
				if !releases {
					return nil
				}
				return told
			},
		}
	}},
	{"blocks are not recalled", "who has a block is told that others wait", func() *sick {
		return &sick{answer: func(r *protocol.Reply) { r.Recall = false }}
	}},
}

var countFaults = []fault{
	{"some releases are lost", "permits are conserved under fire", func() *sick {
		n := 0
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			return s.apply(name, without(b, func(op protocol.Op) bool {
				if op.Verb == protocol.Release {
					n++
				}
				return op.Verb == protocol.Release && n%7 == 0
			}))
		}}
	}},
	{"the counter drifts from the leases", "permits are conserved under fire", func() *sick {
		drift := int64(0)
		return &sick{
			hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
				r := s.apply(name, b)
				if r.Status == protocol.Repeated {
					drift++
				}
				return r
			},
			look: func(snapshot *protocol.Snapshot) { snapshot.InUse += drift },
		}
	}},
	{"releases of parts are lost", "a lease is given back in parts", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			return s.apply(name, without(b, func(op protocol.Op) bool { return op.Verb == protocol.Release && op.Weight > 0 }))
		}}
	}},
	{"a shrink revokes", "a shrink revokes nothing, and its debt is paid first", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			for sum, i := int64(0), 0; i < len(im.Leases); i++ {
				if sum += im.Leases[i].Weight; sum > im.Config.Capacity {
					im.Leases = im.Leases[:i]
				}
			}
		}}
	}},
}

var batchFaults = []fault{
	{"a batch is not atomic", "concurrent calls are as if one after the other", func() *sick {
		return &sick{loose: func(_ context.Context, s *sick, name string, b protocol.Batch) (protocol.Reply, error) {
			first, second := b, b
			first.Ops = without(b, func(op protocol.Op) bool { return op.Verb != protocol.Release }).Ops
			second.Ops = without(b, func(op protocol.Op) bool { return op.Verb == protocol.Release }).Ops
			first.Seq, second.Seq = 2*b.Seq, 2*b.Seq+1
			s.locked(name, first)
			time.Sleep(50 * time.Microsecond)
			return s.locked(name, second), nil
		}}
	}},
	{"of two batches at a time one is lost", "concurrent calls are as if one after the other", func() *sick {
		return &sick{loose: func(_ context.Context, s *sick, name string, b protocol.Batch) (protocol.Reply, error) {
			var image protocol.Image
			s.mu.Lock()
			if s.semaphores[name] != nil {
				image = s.semaphores[name].Image()
			}
			s.mu.Unlock()
			time.Sleep(50 * time.Microsecond)
			state, err := protocol.Restore(image)
			if err != nil {
				return protocol.Reply{}, err
			}
			reply := state.Apply(s.now(), b)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.semaphores[name] = state
			return reply, nil
		}}
	}},
	{"a batch that fails is half done", "a batch whose caller gave up is done wholly or not at all", func() *sick {
		return &sick{loose: func(ctx context.Context, s *sick, name string, b protocol.Batch) (protocol.Reply, error) {
			if ctx.Err() != nil {
				b.Ops = b.Ops[:len(b.Ops)/2]
				s.locked(name, b)
				return protocol.Reply{}, context.Cause(ctx)
			}
			return s.locked(name, b), nil
		}}
	}},
	{"a repeated batch is done again", "a batch that is repeated is answered and not done again", func() *sick {
		seqs := map[protocol.Session]uint64{}
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			seqs[b.Session]++
			b.Seq = seqs[b.Session]
			return s.apply(name, b)
		}}
	}},
	{"an older batch is done", "an older batch is refused", func() *sick {
		last := map[protocol.Session]uint64{}
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			if b.Seq != last[b.Session] {
				last[b.Session] = b.Seq
				s.operate(name, func(im *protocol.Image) {
					for i := range im.Sessions {
						if im.Sessions[i].ID == b.Session {
							im.Sessions[i].Seq = 0
						}
					}
				})
			}
			return s.apply(name, b)
		}}
	}},
	{"cancels come too late", "a cancel that races with the grant leaves nothing behind", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			return s.apply(name, without(b, func(op protocol.Op) bool {
				waits := func(t protocol.TicketInfo) bool { return t.Session == b.Session && t.Ticket == op.Ticket }
				return op.Verb == protocol.Cancel && !slices.ContainsFunc(s.semaphores[name].Snapshot().Queue, waits)
			}))
		}}
	}},
	{"a cancel is overtaken by its own acquire", "a cancel is not overtaken by its own acquire", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.Clone(b.Ops)
			slices.SortStableFunc(b.Ops, func(a, b protocol.Op) int { return -cmp.Compare(a.Verb%3, b.Verb%3) })
			return s.apply(name, b)
		}}
	}},
	{"a result is told once", "a result is told until it is acknowledged", func() *sick {
		told := map[protocol.Session]uint64{}
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.Ack = told[b.Session]
			r := s.apply(name, b)
			for _, f := range r.Results {
				told[b.Session] = f.N
			}
			return r
		}}
	}},
	{"nothing is ever acknowledged", "behaves like the model", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.Ack = 0
			return s.apply(name, b)
		}}
	}},
	{"a delayed batch brings its session back to life", "a process that was stopped past its TTL comes back to nothing", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			r := s.apply(name, b)
			if r.Status != protocol.Unknown {
				return r
			}
			s.operate(name, func(im *protocol.Image) {
				if b.Session <= im.LastSession {
					raise(im, b)
				}
			})
			return s.apply(name, b)
		}}
	}},
	{"goodbyes are not heard", "who says goodbye leaves nothing behind", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.End = false
			return s.apply(name, b)
		}}
	}},
	{"who speaks has a session", "a session that was not opened is not known", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			if s.semaphores[name].Instance(b.Session) == "" {
				s.operate(name, func(im *protocol.Image) { raise(im, b) })
			}
			return s.apply(name, b)
		}}
	}},
	{"sessions of one instance are one", "sessions are numbered apart", func() *sick {
		return &sick{begin: func(snapshot protocol.Snapshot, instance string) protocol.Session {
			for _, other := range snapshot.Sessions {
				if other.Client.Instance == instance {
					return other.Session
				}
			}
			return 0
		}}
	}},
}

// raise begins a session, or begins it again.
func raise(im *protocol.Image, b protocol.Batch) {
	im.LastSession = max(im.LastSession, b.Session)
	im.Sessions = append(im.Sessions, protocol.SessionImage{ID: b.Session, Owner: b.Owner, Client: protocol.Client{Instance: "?"}, Deadline: im.Clock + im.Config.TTL, Renewed: im.Last})
}

// without is a batch without the ops that have something.
func without(b protocol.Batch, unwanted func(protocol.Op) bool) protocol.Batch {
	b.Ops = slices.DeleteFunc(slices.Clone(b.Ops), unwanted)
	return b
}
