package fleettest_test

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

var notifyFaults = []fault{
	{"notifications are lost", "only the instance with the new grant is notified", func() *faultyStore {
		return &faultyStore{notified: func([]string, []string) []string { return nil }}
	}},
	{"all instances are notified", "only the instance with the new grant is notified", func() *faultyStore {
		return &faultyStore{notified: func(woken, all []string) []string {
			if len(woken) == 0 {
				return nil
			}
			return all
		}}
	}},
	{"an expiry notifies no instance", "an instance that is granted by an expiry is notified", func() *faultyStore {
		releases := false
		return &faultyStore{
			applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
				releases = slices.ContainsFunc(b.Ops, func(op protocol.Op) bool { return op.Verb == protocol.Release })
				return s.applyLocked(name, b)
			},
			notified: func(woken, _ []string) []string {
				if !releases {
					return nil
				}
				return woken
			},
		}
	}},
	{"blocks are not recalled", "an instance with a block is notified when others wait", func() *faultyStore {
		return &faultyStore{changeReply: func(r *protocol.Reply) { r.Recall = false }}
	}},
}

var countFaults = []fault{
	{"some releases are lost", "permits are conserved under concurrent random load", func() *faultyStore {
		n := 0
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			return s.applyLocked(name, without(b, func(op protocol.Op) bool {
				if op.Verb == protocol.Release {
					n++
				}
				return op.Verb == protocol.Release && n%7 == 0
			}))
		}}
	}},
	{"the counter drifts from the leases", "permits are conserved under concurrent random load", func() *faultyStore {
		drift := int64(0)
		return &faultyStore{
			applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
				r := s.applyLocked(name, b)
				if r.Status == protocol.Repeated {
					drift++
				}
				return r
			},
			changeSnapshot: func(snapshot *protocol.Snapshot) { snapshot.InUse += drift },
		}
	}},
	{"partial releases are lost", "a lease is released in parts", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			return s.applyLocked(name, without(b, func(op protocol.Op) bool { return op.Verb == protocol.Release && op.Weight > 0 }))
		}}
	}},
	{"a shrink revokes", "a shrink revokes nothing, and its debt is paid first", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			for sum, i := int64(0), 0; i < len(im.Leases); i++ {
				if sum += im.Leases[i].Weight; sum > im.Config.Capacity {
					im.Leases = im.Leases[:i]
				}
			}
		}}
	}},
}

var batchFaults = []fault{
	{"a batch is not atomic", "concurrent calls are linearizable", func() *faultyStore {
		return &faultyStore{applyUnlocked: func(_ context.Context, s *faultyStore, name string, b protocol.Batch) (protocol.Reply, error) {
			first, second := b, b
			first.Ops = without(b, func(op protocol.Op) bool { return op.Verb != protocol.Release }).Ops
			second.Ops = without(b, func(op protocol.Op) bool { return op.Verb == protocol.Release }).Ops
			first.Seq, second.Seq = 2*b.Seq, 2*b.Seq+1
			s.lockAndApply(name, first)
			time.Sleep(50 * time.Microsecond)
			return s.lockAndApply(name, second), nil
		}}
	}},
	{"of two concurrent batches one is lost", "concurrent calls are linearizable", func() *faultyStore {
		return &faultyStore{applyUnlocked: func(_ context.Context, s *faultyStore, name string, b protocol.Batch) (protocol.Reply, error) {
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
	{"a batch that fails is half applied", "a batch whose caller gave up is applied wholly or not at all", func() *faultyStore {
		return &faultyStore{applyUnlocked: func(ctx context.Context, s *faultyStore, name string, b protocol.Batch) (protocol.Reply, error) {
			if ctx.Err() != nil {
				b.Ops = b.Ops[:len(b.Ops)/2]
				s.lockAndApply(name, b)
				return protocol.Reply{}, context.Cause(ctx)
			}
			return s.lockAndApply(name, b), nil
		}}
	}},
	{"a repeated batch is applied again", "a repeated batch gets the same reply and is not applied again", func() *faultyStore {
		seqs := map[protocol.Session]uint64{}
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			seqs[b.Session]++
			b.Seq = seqs[b.Session]
			return s.applyLocked(name, b)
		}}
	}},
	{"an older batch is applied", "an older batch is rejected", func() *faultyStore {
		last := map[protocol.Session]uint64{}
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			if b.Seq != last[b.Session] {
				last[b.Session] = b.Seq
				s.editLocked(name, func(im *protocol.Image) {
					for i := range im.Sessions {
						if im.Sessions[i].ID == b.Session {
							im.Sessions[i].Seq = 0
						}
					}
				})
			}
			return s.applyLocked(name, b)
		}}
	}},
	{"cancels come too late", "a cancel that races with the grant leaves nothing behind", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			return s.applyLocked(name, without(b, func(op protocol.Op) bool {
				waits := func(t protocol.TicketInfo) bool { return t.Session == b.Session && t.Ticket == op.Ticket }
				return op.Verb == protocol.Cancel && !slices.ContainsFunc(s.semaphores[name].Snapshot().Queue, waits)
			}))
		}}
	}},
	{"a cancel is overtaken by its own acquire", "a cancel is not overtaken by its own acquire", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.Clone(b.Ops)
			slices.SortStableFunc(b.Ops, func(a, b protocol.Op) int { return -cmp.Compare(a.Verb%3, b.Verb%3) })
			return s.applyLocked(name, b)
		}}
	}},
	{"a result is sent once", "a result is repeated until it is acknowledged", func() *faultyStore {
		woken := map[protocol.Session]uint64{}
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Ack = woken[b.Session]
			r := s.applyLocked(name, b)
			for _, f := range r.Results {
				woken[b.Session] = f.N
			}
			return r
		}}
	}},
	{"nothing is ever acknowledged", "behaves like the model", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Ack = 0
			return s.applyLocked(name, b)
		}}
	}},
	{"a delayed batch revives its session", "a process that was stopped past its TTL holds nothing", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			r := s.applyLocked(name, b)
			if r.Status != protocol.Unknown {
				return r
			}
			s.editLocked(name, func(im *protocol.Image) {
				if b.Session <= im.LastSession {
					addSession(im, b)
				}
			})
			return s.applyLocked(name, b)
		}}
	}},
	{"the end of a session is ignored", "the end of a session frees its leases and tickets", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.End = false
			return s.applyLocked(name, b)
		}}
	}},
	{"a batch opens its session", "a session that was not opened is unknown", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			if s.semaphores[name].Instance(b.Session) == "" {
				s.editLocked(name, func(im *protocol.Image) { addSession(im, b) })
			}
			return s.applyLocked(name, b)
		}}
	}},
	{"sessions of one instance are one", "each session has a number of its own", func() *faultyStore {
		return &faultyStore{reuseSession: func(snapshot protocol.Snapshot, instance string) protocol.Session {
			for _, other := range snapshot.Sessions {
				if other.Client.Instance == instance {
					return other.Session
				}
			}
			return 0
		}}
	}},
}

// addSession adds the session of a batch to an image.
func addSession(im *protocol.Image, b protocol.Batch) {
	im.LastSession = max(im.LastSession, b.Session)
	im.Sessions = append(im.Sessions, protocol.SessionImage{ID: b.Session, Owner: b.Owner, Client: protocol.Client{Instance: "?"}, Deadline: im.Clock + im.Config.TTL, Renewed: im.Last})
}

// without returns a batch without the unwanted operations.
func without(b protocol.Batch, unwanted func(protocol.Op) bool) protocol.Batch {
	b.Ops = slices.DeleteFunc(slices.Clone(b.Ops), unwanted)
	return b
}
