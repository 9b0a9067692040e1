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

var lineFaults = []fault{
	{"the light come first", "a heavy waiter under a stream of light ones gets its turn", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			slices.SortStableFunc(im.Queue, func(a, b protocol.TicketImage) int { return cmp.Compare(a.Weight, b.Weight) })
		}}
	}},
	{"who fits overtakes", "a heavy waiter is not overtaken by a stream of light ones", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
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
	{"who was late goes to the end of the line", "an outage of the caller does not make it lose its place", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			s.operate(name, func(im *protocol.Image) {
				isLate := func(one protocol.SessionImage) bool {
					return one.ID == b.Session && s.now()-one.Renewed > im.Config.TTL/2
				}
				if slices.ContainsFunc(im.Sessions, isLate) {
					theirs := func(t protocol.TicketImage) bool { return t.Session != b.Session }
					own := slices.DeleteFunc(slices.Clone(im.Queue), theirs)
					im.Queue = append(slices.DeleteFunc(im.Queue, func(t protocol.TicketImage) bool { return !theirs(t) }), own...)
				}
			})
			return s.apply(name, b)
		}}
	}},
	{"the line is by session", "order is that of commits, over many sessions of one instance", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			slices.SortStableFunc(im.Queue, func(a, b protocol.TicketImage) int { return cmp.Compare(a.Session, b.Session) })
		}}
	}},
	{"a try waits", "refusals say why", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.Clone(b.Ops)
			for i := range b.Ops {
				b.Ops[i].Try = false
			}
			return s.apply(name, b)
		}}
	}},
	{"weights are all one", "a heavy waiter is served by releases of parts", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.Clone(b.Ops)
			for i := range b.Ops {
				b.Ops[i].Weight = min(b.Ops[i].Weight, 1)
			}
			return s.apply(name, b)
		}}
	}},
}

var fenceFaults = []fault{
	{"the floor is too high", "a guard refuses those who are gone, and nobody who holds", func() *sick {
		return &sick{answer: fences(func(f *protocol.Fence) { f.Floor = f.Seq })}
	}},
	{"nobody is said to be revoked", "fences rise, and tell of those who left in between", func() *sick {
		return &sick{answer: fences(func(f *protocol.Fence) { f.Revoked = nil })}
	}},
	{"a fence stays as it was at first", "a fence is told anew with its result", func() *sick {
		first := map[protocol.Seq]protocol.Fence{}
		return &sick{answer: fences(func(f *protocol.Fence) {
			if _, told := first[f.Seq]; !told {
				first[f.Seq] = *f
			}
			*f = first[f.Seq]
		})}
	}},
	{"what is deleted leaves no grave", "a semaphore that is made again after a step back has no fences of before", func() *sick {
		return &sick{open: func(_ *protocol.Config, grave *protocol.Seq) { *grave = 0 }}
	}},
	{"seqs begin at 1", "a deleted semaphore is gone, and its fences do not come back", func() *sick {
		s := &sick{open: func(_ *protocol.Config, grave *protocol.Seq) { *grave = 0 }}
		s.cut = func(im *protocol.Image) {
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
	{"who opens last configures", "what is stored counts, not what a later opener brings", func() *sick {
		s, capacity := &sick{}, int64(0)
		s.open = func(c *protocol.Config, _ *protocol.Seq) { capacity = c.Capacity }
		s.cut = func(im *protocol.Image) { im.Config.Capacity = capacity }
		return s
	}},
	{"a warning without advice", "an engine that is examined says what was seen and what to do", func() *sick {
		return &sick{examined: func(f *fleet.Finding) { f.Level = fleet.LevelWarning }}
	}},
	{"a prefix is a pattern", "what there is can be listed", func() *sick {
		return &sick{matches: func(name, prefix string) bool {
			ok, _ := path.Match(strings.ReplaceAll(prefix, "_", "?"), name[:min(len(name), len(prefix))])
			return ok
		}}
	}},
	{"a list forgets the waiters", "a list has the load of each semaphore", func() *sick {
		return &sick{listed: func(page []protocol.Summary) []protocol.Summary {
			for i := range page {
				page[i].Waiting = 0
			}
			return page
		}}
	}},
	{"changes are not versioned", "a change that is based on an old version is refused", func() *sick {
		return &sick{administer: func(state *protocol.State, c *fleet.Command) {
			if c.Configure != nil {
				changed := *c.Configure
				changed.Version = state.Snapshot().Config.Version
				c.Configure = &changed
			}
		}}
	}},
	{"what is revoked is free at once", "a revoked lease is free when its holder has heard of it", func() *sick {
		return &sick{administer: func(_ *protocol.State, c *fleet.Command) {
			if c.Revoke != nil {
				c.Revoke.AtOnce = true
			}
		}}
	}},
	{"a missing semaphore is created", "an opener that requires the semaphore creates nothing", func() *sick {
		return &sick{creates: true, open: func(c *protocol.Config, _ *protocol.Seq) { c.TTL = max(c.TTL, 1_000_000) }}
	}},
	{"any version is deleted", "a delete that names another version than the stored one changes nothing", func() *sick {
		return &sick{administer: func(_ *protocol.State, c *fleet.Command) { c.DeleteVersion = 0 }}
	}},
	{"settlements are ignored", "a grant of a rate is settled by its session alone, once it has cost less or more", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			b.Ops = slices.DeleteFunc(slices.Clone(b.Ops), func(op protocol.Op) bool { return op.Verb == protocol.Settle })
			return s.apply(name, b)
		}}
	}},
	{"slots are shared", "leases have the lowest free numbers", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			r := s.apply(name, b)
			for i := range r.Results {
				if r.Results[i].Slots != "" {
					r.Results[i].Slots = "0"
				}
			}
			return r
		}}
	}},
	{"one is queued though none may be", "with no waiters allowed an acquire is granted or rejected", func() *sick {
		return &sick{open: func(c *protocol.Config, _ *protocol.Seq) {
			if c.MaxWaiters == protocol.NoWaiters {
				c.MaxWaiters = 1
			}
		}}
	}},
	{"every version may open", "neighbouring versions share a semaphore, others are refused", func() *sick {
		return &sick{open: func(c *protocol.Config, _ *protocol.Seq) { c.Protocol = protocol.Version + 1 }}
	}},
	{"an op that is not known fails its batch", "what an op says that is not known is refused, and the rest is done", func() *sick {
		return &sick{loose: func(_ context.Context, s *sick, name string, b protocol.Batch) (protocol.Reply, error) {
			if slices.ContainsFunc(b.Ops, func(op protocol.Op) bool { return op.Verb > protocol.Settle }) {
				return protocol.Reply{}, errors.New("unknown verb")
			}
			return s.locked(name, b), nil
		}}
	}},
}

var timeFaults = []fault{
	{"repeats renew", "a repeated batch renews nothing", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			r := s.apply(name, b)
			if r.Status == protocol.Repeated {
				s.operate(name, func(im *protocol.Image) {
					i := slices.IndexFunc(im.Sessions, func(one protocol.SessionImage) bool { return one.ID == b.Session })
					again := im.Sessions[i]
					again.Deadline, again.Renewed = im.Clock+im.Config.TTL, im.Last
					im.Sessions = append(slices.Delete(im.Sessions, i, i+1), again)
				})
			}
			return r
		}}
	}},
	{"a step of the clock kills the living", "a step of the clock robs nobody who renews", func() *sick {
		return &sick{hear: func(s *sick, name string, b protocol.Batch) protocol.Reply {
			state := s.semaphores[name]
			image := state.Image()
			for at := image.Last; at < s.now() && at < image.Last+8*image.Config.TTL; at += image.Config.TTL / 6 {
				state.Inspect(at)
			}
			return s.apply(name, b)
		}}
	}},
	{"a step back brings everything to a halt", "the dead are noticed whatever the clock does", func() *sick {
		latest := protocol.Micros(0)
		return &sick{time: func(now protocol.Micros) protocol.Micros {
			latest = max(latest, now)
			return latest
		}}
	}},
	{"the dead live", "what the dead had is free after a TTL, and not before", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			for i := range im.Sessions {
				im.Sessions[i].Deadline = math.MaxInt64 / 2
			}
		}}
	}},
	{"the living die too early", "what the dead had is free after a TTL, and not before", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			for i := range im.Sessions {
				im.Sessions[i].Deadline = min(im.Sessions[i].Deadline, im.Clock+im.Config.TTL/2)
			}
		}}
	}},
	{"who waits does so for ever", "a ticket's own deadline is kept", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			for i := range im.Queue {
				im.Queue[i].Until = 0
			}
		}}
	}},
	{"who waits dies of it, though it speaks", "who speaks lives, and waits", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			for i := range im.Queue {
				if im.Queue[i].Until == 0 {
					im.Queue[i].Until = im.Clock + im.Config.TTL
				}
			}
		}}
	}},
	{"nobody is told to call again", "a thousand dead waiters at the head are not in the way for long", func() *sick {
		return &sick{answer: func(r *protocol.Reply) { r.More = false }}
	}},
	{"nobody is told to watch the time", "what the dead had is free after a TTL, and not before", func() *sick {
		return &sick{answer: func(r *protocol.Reply) { r.Next = 0 }}
	}},
	{"nobody is told when the time comes", "a capacity rises by its ramp", func() *sick {
		return &sick{answer: func(r *protocol.Reply) {
			if r.Next > 0 {
				r.Next = r.Config.TTL / 6
			}
		}}
	}},
	{"a try is refused because of the dead", "a try long after a crash can be decided when the reply says", func() *sick {
		return &sick{cut: func(im *protocol.Image) {
			for i := range im.Sessions {
				im.Sessions[i].Renewed = math.MaxInt64 / 2
			}
		}}
	}},
	{"looks are out of date", "concurrent calls are as if one after the other", func() *sick {
		var last protocol.Snapshot
		return &sick{look: func(snapshot *protocol.Snapshot) { *snapshot, last = last, *snapshot }}
	}},
}
