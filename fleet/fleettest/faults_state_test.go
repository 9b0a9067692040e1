package fleettest_test

import (
	"cmp"
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

var queueFaults = []fault{
	{"light tickets come first", "a heavy waiter is granted despite a stream of light ones", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			slices.SortStableFunc(im.Queue, func(a, b protocol.TicketImage) int { return cmp.Compare(a.Weight, b.Weight) })
		}}
	}},
	{"a ticket that fits overtakes", "a heavy waiter is not overtaken by a stream of light ones", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			free := im.Config.Capacity
			for _, l := range im.Leases {
				free -= l.Weight
			}
			if i := slices.IndexFunc(im.Queue, func(t protocol.TicketImage) bool { return t.Least <= free }); i > 0 {
				fits := im.Queue[i]
				im.Queue = slices.Insert(slices.Delete(im.Queue, i, i+1), 0, fits)
			}
		}}
	}},
	{"a late session goes to the end of the queue", "a waiter keeps its place through an outage shorter than its TTL", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			s.editLocked(name, func(im *protocol.Image) {
				isLate := func(one protocol.SessionImage) bool {
					return one.ID == b.Session && s.now()-one.Renewed > im.Config.TTL/2
				}
				if slices.ContainsFunc(im.Sessions, isLate) {
					theirs := func(t protocol.TicketImage) bool { return t.Session != b.Session }
					own := slices.DeleteFunc(slices.Clone(im.Queue), theirs)
					im.Queue = append(slices.DeleteFunc(im.Queue, func(t protocol.TicketImage) bool { return !theirs(t) }), own...)
				}
			})
			return s.applyLocked(name, b)
		}}
	}},
	{"the queue is ordered by session", "order is that of commits across sessions of one instance", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			slices.SortStableFunc(im.Queue, func(a, b protocol.TicketImage) int { return cmp.Compare(a.Session, b.Session) })
		}}
	}},
	{"a try waits", "each rejection has its reason", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.Clone(b.Ops)
			for i := range b.Ops {
				b.Ops[i].Try = false
			}
			return s.applyLocked(name, b)
		}}
	}},
	{"weights are all one", "partial releases grant a heavy waiter", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.Clone(b.Ops)
			for i := range b.Ops {
				b.Ops[i].Weight = min(b.Ops[i].Weight, 1)
			}
			return s.applyLocked(name, b)
		}}
	}},
}

var fenceFaults = []fault{
	{"the floor is too high", "a guard rejects ended leases and admits live ones", func() *faultyStore {
		return &faultyStore{changeReply: fences(func(f *protocol.Fence) { f.Floor = f.Seq })}
	}},
	{"revoked leases are not listed", "fences rise and list the leases that ended in between", func() *faultyStore {
		return &faultyStore{changeReply: fences(func(f *protocol.Fence) { f.Revoked = nil })}
	}},
	{"a fence stays as it was at first", "a repeated result has a current fence", func() *faultyStore {
		first := map[protocol.Seq]protocol.Fence{}
		return &faultyStore{changeReply: fences(func(f *protocol.Fence) {
			if _, seen := first[f.Seq]; !seen {
				first[f.Seq] = *f
			}
			*f = first[f.Seq]
		})}
	}},
	{"a deleted semaphore leaves no tombstone", "a semaphore that is created again after a step back has higher fences", func() *faultyStore {
		return &faultyStore{open: func(_ *protocol.Config, tombstone *protocol.Seq) { *tombstone = 0 }}
	}},
	{"seqs begin at 1", "a deleted semaphore is gone, and its fences are not reused", func() *faultyStore {
		s := &faultyStore{open: func(_ *protocol.Config, tombstone *protocol.Seq) { *tombstone = 0 }}
		s.changeImage = func(im *protocol.Image) {
			if len(im.Leases) == 0 && im.Config.Version == 1 {
				im.LastSeq = 0
			}
		}
		return s
	}},
}

// fences changes the fences in a reply.
func fences(change func(*protocol.Fence)) func(*protocol.Reply) {
	return func(r *protocol.Reply) {
		for i := range r.Results {
			change(&r.Results[i].Fence)
		}
	}
}

var adminFaults = []fault{
	{"the last opener configures", "the stored configuration wins over that of a later opener", func() *faultyStore {
		s, capacity := &faultyStore{}, int64(0)
		s.open = func(c *protocol.Config, _ *protocol.Seq) { capacity = c.Capacity }
		s.changeImage = func(im *protocol.Image) { im.Config.Capacity = capacity }
		return s
	}},
	{"a warning without advice", "an examination reports what was seen, and advice for problems", func() *faultyStore {
		return &faultyStore{changeFinding: func(f *fleet.Finding) { f.Level = fleet.LevelWarning }}
	}},
	{"a prefix is a pattern", "semaphores are listed by prefix, in order, in pages", func() *faultyStore {
		return &faultyStore{matches: func(name, prefix string) bool {
			ok, _ := path.Match(strings.ReplaceAll(prefix, "_", "?"), name[:min(len(name), len(prefix))])
			return ok
		}}
	}},
	{"a list omits the waiters", "a list has the load of each semaphore", func() *faultyStore {
		return &faultyStore{changeList: func(page []protocol.Summary) []protocol.Summary {
			for i := range page {
				page[i].Waiting = 0
			}
			return page
		}}
	}},
	{"changes are not versioned", "a change based on an old version is rejected", func() *faultyStore {
		return &faultyStore{administer: func(state *protocol.State, c *fleet.Command) {
			if c.Configure != nil {
				changed := *c.Configure
				changed.Version = state.Snapshot().Config.Version
				c.Configure = &changed
			}
		}}
	}},
	{"a revoked lease is free at once", "a revoked lease is free when its holder has acknowledged it", func() *faultyStore {
		return &faultyStore{administer: func(_ *protocol.State, c *fleet.Command) {
			if c.Revoke != nil {
				c.Revoke.AtOnce = true
			}
		}}
	}},
	{"a missing semaphore is created", "an opener that requires the semaphore creates nothing", func() *faultyStore {
		return &faultyStore{creates: true, open: func(c *protocol.Config, _ *protocol.Seq) { c.TTL = max(c.TTL, 1_000_000) }}
	}},
	{"any version is deleted", "a delete that names another version than the stored one changes nothing", func() *faultyStore {
		return &faultyStore{administer: func(_ *protocol.State, c *fleet.Command) { c.DeleteVersion = 0 }}
	}},
	{"settlements are ignored", "a grant of a rate is settled by its session alone, at a lower or higher cost", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.DeleteFunc(slices.Clone(b.Ops), func(op protocol.Op) bool { return op.Verb == protocol.Settle })
			return s.applyLocked(name, b)
		}}
	}},
	{"slots are shared", "leases have the lowest free numbers", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			r := s.applyLocked(name, b)
			for i := range r.Results {
				if r.Results[i].Slots != "" {
					r.Results[i].Slots = "0"
				}
			}
			return r
		}}
	}},
	{"a ticket is queued although none may be", "with no waiters allowed an acquire is granted or rejected", func() *faultyStore {
		return &faultyStore{open: func(c *protocol.Config, _ *protocol.Seq) {
			if c.MaxWaiters == protocol.NoWaiters {
				c.MaxWaiters = 1
			}
		}}
	}},
	{"every version may open", "adjacent versions share a semaphore, others are rejected", func() *faultyStore {
		return &faultyStore{open: func(c *protocol.Config, _ *protocol.Seq) { c.Protocol = protocol.Version + 1 }}
	}},
	{"an unknown op fails its batch", "an unknown op is rejected, and the rest of the batch is applied", func() *faultyStore {
		return &faultyStore{applyUnlocked: func(_ context.Context, s *faultyStore, name string, b protocol.Batch) (protocol.Reply, error) {
			if slices.ContainsFunc(b.Ops, func(op protocol.Op) bool { return op.Verb > protocol.Settle }) {
				return protocol.Reply{}, errors.New("unknown verb")
			}
			return s.lockAndApply(name, b), nil
		}}
	}},
}

var timeFaults = []fault{
	{"repeats renew", "a repeated batch renews nothing", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			r := s.applyLocked(name, b)
			if r.Status == protocol.Repeated {
				s.editLocked(name, func(im *protocol.Image) {
					i := slices.IndexFunc(im.Sessions, func(one protocol.SessionImage) bool { return one.ID == b.Session })
					again := im.Sessions[i]
					again.Deadline, again.Renewed = im.Clock+im.Config.TTL, im.Last
					im.Sessions = append(slices.Delete(im.Sessions, i, i+1), again)
				})
			}
			return r
		}}
	}},
	{"a clock step ends live sessions", "a clock step does not end sessions that renew", func() *faultyStore {
		return &faultyStore{applyFault: func(s *faultyStore, name string, b protocol.Batch) protocol.Reply {
			state := s.semaphores[name]
			image := state.Image()
			for at := image.Last; at < s.now() && at < image.Last+8*image.Config.TTL; at += image.Config.TTL / 6 {
				state.Inspect(at)
			}
			return s.applyLocked(name, b)
		}}
	}},
	{"after a step back the clock stands still", "sessions expire whatever the clock does", func() *faultyStore {
		latest := protocol.Micros(0)
		return &faultyStore{time: func(now protocol.Micros) protocol.Micros {
			latest = max(latest, now)
			return latest
		}}
	}},
	{"sessions do not expire", "leases of an expired session are free after a TTL, and not before", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			for i := range im.Sessions {
				im.Sessions[i].Deadline = math.MaxInt64 / 2
			}
		}}
	}},
	{"sessions expire too early", "leases of an expired session are free after a TTL, and not before", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			for i := range im.Sessions {
				im.Sessions[i].Deadline = min(im.Sessions[i].Deadline, im.Clock+im.Config.TTL/2)
			}
		}}
	}},
	{"tickets do not time out", "a ticket times out at its own deadline", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			for i := range im.Queue {
				im.Queue[i].Until = 0
			}
		}}
	}},
	{"tickets time out although the session sends heartbeats", "a session that sends heartbeats keeps its lease or its place", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			for i := range im.Queue {
				if im.Queue[i].Until == 0 {
					im.Queue[i].Until = im.Clock + im.Config.TTL
				}
			}
		}}
	}},
	{"More is never set", "a thousand expired waiters at the head of the queue are skipped", func() *faultyStore {
		return &faultyStore{changeReply: func(r *protocol.Reply) { r.More = false }}
	}},
	{"Next is never set", "leases of an expired session are free after a TTL, and not before", func() *faultyStore {
		return &faultyStore{changeReply: func(r *protocol.Reply) { r.Next = 0 }}
	}},
	{"Next ignores grants by time", "a capacity rises by its ramp", func() *faultyStore {
		return &faultyStore{changeReply: func(r *protocol.Reply) {
			if r.Next > 0 {
				r.Next = r.Config.TTL / 6
			}
		}}
	}},
	{"a try that is undecided is reported as decided", "a try long after a crash is decided within the time in the reply", func() *faultyStore {
		return &faultyStore{changeImage: func(im *protocol.Image) {
			for i := range im.Sessions {
				im.Sessions[i].Renewed = math.MaxInt64 / 2
			}
		}}
	}},
	{"inspections are out of date", "concurrent calls are linearizable", func() *faultyStore {
		var last protocol.Snapshot
		return &faultyStore{changeSnapshot: func(snapshot *protocol.Snapshot) { *snapshot, last = last, *snapshot }}
	}},
}
