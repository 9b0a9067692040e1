package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/paging"
)

// A semaphore is the state of a semaphore, as pages show it.
type semaphore struct {
	protocol.Snapshot
	Name string
	now  time.Time     // on the store's clock
	p99  time.Duration // of recent holds; 0: unknown
	free string        // when a rate has its next permit, in words; "": unknown

	holding, waiting int64  // numbers of leases and queued acquires; not all may be listed
	after, next      string // cursors of this page and of the next one, as in the API
	ahead            int    // number of waiters before the first one listed
}

func newSemaphore(name string, s protocol.Snapshot, now time.Time) semaphore {
	return semaphore{Snapshot: s, Name: name, now: now, holding: int64(len(s.Leases)), waiting: int64(len(s.Queue))}
}

// summarized converts a summary. The result has no holders and waiters.
func summarized(s protocol.Summary) semaphore {
	return semaphore{Snapshot: protocol.Snapshot{Config: s.Config, Effective: s.Effective, InUse: s.InUse}, Name: s.Name, holding: s.Leases, waiting: s.Waiting}
}

// mostListed bounds the holders, and the waiters, on the first page: it lists the oldest ones,
// which are the most relevant. Further pages list twice as many entries.
const mostListed = 100

// listed returns the semaphore with only one page of its holders and waiters, to keep little
// in memory. An invalid cursor selects the first page.
func (s semaphore) listed(after string) semaphore {
	held, queued, next, ok := paging.Cut(s.Snapshot, after, 2*mostListed)
	switch {
	case ok && after != "":
		s.after, s.next = after, next
		s.ahead = len(s.Queue) - len(queued)
		if len(queued) > 0 {
			s.ahead = slices.IndexFunc(s.Queue, func(t protocol.TicketInfo) bool { return t == queued[0] })
		}
	default:
		held, queued = s.Leases[:min(len(s.Leases), mostListed)], s.Queue[:min(len(s.Queue), mostListed)]
		switch {
		case len(held) < len(s.Leases):
			s.next = paging.AfterHolder(held[len(held)-1])
		case len(queued) < len(s.Queue):
			s.next = paging.AfterWaiter(queued[len(queued)-1])
		}
	}
	s.Leases, s.Queue = slices.Clone(held), slices.Clone(queued)
	listed := map[protocol.Session]bool{}
	for _, l := range s.Leases {
		listed[l.Session] = true
	}
	for _, t := range s.Queue {
		listed[t.Session] = true
	}
	all := s.Sessions
	s.Sessions = nil
	for _, one := range all {
		if len(s.Sessions) == len(listed) {
			break
		}
		if listed[one.Session] {
			s.Sessions = append(s.Sessions, one)
		}
	}
	return s
}

// MoreHolders and MoreWaiters return the numbers of entries that are not listed.
func (s semaphore) MoreHolders() int64 { return s.holding - int64(len(s.Leases)) }
func (s semaphore) MoreWaiters() int64 { return s.waiting - int64(len(s.Queue)) }

// Next returns the URL of the next page, "" if there is none.
func (s semaphore) Next() string {
	if s.next == "" {
		return ""
	}
	return s.URL() + "&after=" + url.QueryEscape(s.next)
}

// After returns the cursor of the page, "" for the first one.
func (s semaphore) After() string { return s.after }

func (s semaphore) ID() string             { return "s:" + s.Name }
func (s semaphore) URL() string            { return "/ui/semaphore?name=" + url.QueryEscape(s.Name) }
func (s semaphore) Waiting() int64         { return s.waiting }
func (s semaphore) IsRate() bool           { return s.Config.Kind == protocol.Rate }
func (s semaphore) Window() string         { return age(span(s.Config.Window)) }
func (s semaphore) TTL() string            { return age(span(s.Config.TTL)) }
func span(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// Free returns the number of permits that can be granted.
func (s semaphore) Free() int64 {
	if s.Config.Draining {
		return 0
	}
	return max(0, s.Effective-s.InUse)
}

// use returns the fraction of the effective capacity that is in use.
func (s semaphore) use() float64 {
	switch {
	case s.Effective > 0:
		return float64(s.InUse) / float64(s.Effective)
	case s.InUse > 0:
		return 1
	}
	return 0
}

// Percent formats the fraction of the effective capacity that is in use.
func (s semaphore) Percent() string { return fmt.Sprintf("%.0f %%", 100*s.use()) }

// Tone returns the urgency: acquires wait, the semaphore is nearly full, or neither.
func (s semaphore) Tone() string {
	switch {
	case s.waiting > 0, s.InUse > s.Effective:
		return "critical"
	case s.use() >= 0.8:
		return "tense"
	}
	return "calm"
}

// A state is a notable condition of a semaphore. It has a text: colour alone conveys nothing.
type state struct{ Text, Why, Tone string }

// States returns the notable conditions, nil if there are none.
func (s semaphore) States() (all []state) {
	c := s.Config
	switch {
	case c.Draining && s.InUse == 0:
		all = append(all, state{"drained", "Nothing is in use, and nothing is granted until it is resumed.", "tense"})
	case c.Draining:
		all = append(all, state{"draining", "Nothing is granted; held leases stay until they are released.", "tense"})
	case c.Capacity == 0:
		all = append(all, state{"paused", "The capacity is 0: nothing is granted until it is raised.", "tense"})
	}
	switch {
	case s.InUse > s.Effective && c.Capacity > 0:
		all = append(all, state{"over by " + count(s.InUse-s.Effective), "More permits are in use than the lowered capacity: nothing is granted until enough are released.", "critical"})
	case s.Effective < c.Capacity:
		all = append(all, state{"ramping to " + count(c.Capacity), fmt.Sprintf("The capacity rises by %s per second.", count(c.Ramp)), "tense"})
	case s.InUse == s.Effective && c.Capacity > 0 && !c.Draining && s.IsRate():
		all = append(all, state{"spent" + s.free, fmt.Sprintf("All permits of the last %s are spent. On average, one becomes free every %s.", s.Window(), Brief(s.pace())), s.Tone()})
	case s.InUse == s.Effective && c.Capacity > 0 && !c.Draining:
		all = append(all, state{"full", "All permits are in use.", s.Tone()})
	case s.undecided():
		all = append(all, state{"undecided", fmt.Sprintf("The first waiter would fit, but the store grants nothing yet: after a restart it waits until permits that it may have forgotten have expired, %s at most.", s.TTL()), "tense"})
	}
	return all
}

// undecided reports whether the first acquire of the queue waits although it would fit: the store does not know
// yet what is held. Summaries have no queue, and pages but the first have a part of it.
func (s semaphore) undecided() bool {
	return len(s.Queue) > 0 && s.ahead == 0 && s.Queue[0].Weight <= s.Free() && s.since(s.Queue[0].Since) >= lasting
}

// pace returns the mean time between two permits of a rate.
func (s semaphore) pace() time.Duration {
	return span(s.Config.Window) / time.Duration(max(1, s.Config.Capacity))
}

// freeText describes when a spent rate has its next permit.
func (s semaphore) freeText(l Live) string {
	if !s.IsRate() || s.InUse < s.Effective || l.Next <= 0 {
		return ""
	}
	in := age(l.Next)
	if l.Next < 10*time.Second {
		in = fmt.Sprintf("%.1fs", max(0.1, l.Next.Seconds()))
	}
	if l.NextSpent < s.InUse-max(1, s.InUse/10) { // the store and this server do not count a grant at the same moment
		return ", next within " + in
	}
	return ", next in " + in
}

// A bar shows the permits in use, over the capacity, and to come, in percent of its width.
type bar struct{ Used, OverAt, Over, ComingAt, Coming string }

// Bar returns the bar. Its width stands for the capacity, or for the permits in use if there
// are more.
func (s semaphore) Bar() (b bar) {
	whole := float64(max(1, s.Config.Capacity, s.Effective, s.InUse))
	percent := func(n int64) string { return fmt.Sprintf("%.2f%%", 100*float64(max(0, n))/whole) }
	b.Used = percent(min(s.InUse, s.Effective))
	b.OverAt, b.Over = b.Used, percent(s.InUse-s.Effective)
	reached := max(s.InUse, s.Effective)
	b.ComingAt, b.Coming = percent(reached), percent(s.Config.Capacity-reached)
	return b
}

// BarText describes the bar for screen readers.
func (s semaphore) BarText() string {
	return fmt.Sprintf("%s of %s in use, %s waiting", count(s.InUse), count(s.Effective), count(s.Waiting()))
}

// A holder is a lease as shown. Equal holders render to equal HTML.
type holder struct {
	protocol.LeaseInfo
	Name           string // of the semaphore
	TTL            time.Duration
	Instance       string
	Held           time.Duration // truncated to what is shown
	SinceHeartbeat time.Duration // time since the last heartbeat, truncated to what is shown
	Usual          time.Duration // the 99th percentile of recent holds, if this one is far longer; 0: it is not
	Overdue        bool          // the next heartbeat is late
	Numbered       bool          // the lease has slots
	MayChange      bool
}

func (h holder) ID() string { return fmt.Sprintf("l:%d", h.Seq) }

// Granted returns the time of the grant.
func (h holder) Granted() time.Time { return time.UnixMicro(int64(h.LeaseInfo.Since)).UTC() }

// Left returns the time until the lease expires without a renewal.
func (h holder) Left() time.Duration { return max(0, h.TTL-h.SinceHeartbeat) }

// RevokeURL returns the URL of the revoke dialog.
func (h holder) RevokeURL() string {
	return fmt.Sprintf("/ui/confirm?do=revoke&name=%s&lease=%d", url.QueryEscape(h.Name), h.Seq)
}

// sessions returns the listed sessions by number.
func (s semaphore) sessions() map[protocol.Session]protocol.SessionInfo {
	all := make(map[protocol.Session]protocol.SessionInfo, len(s.Sessions))
	for _, one := range s.Sessions {
		all[one.Session] = one
	}
	return all
}

// holders returns the listed holders, oldest first.
func (s semaphore) holders(sessions map[protocol.Session]protocol.SessionInfo, mayChange bool) (all []holder) {
	for _, l := range s.Leases {
		session := sessions[l.Session]
		sinceHeartbeat := s.since(session.Renewed)
		var usual time.Duration
		if heldLong(s.since(l.Since), s.p99) {
			usual = s.p99
		}
		all = append(all, holder{
			LeaseInfo: l, Name: s.Name, TTL: span(s.Config.TTL), Instance: session.Client.Instance,
			Held: shownAge(s.since(l.Since)), SinceHeartbeat: shownAge(sinceHeartbeat), MayChange: mayChange, Usual: usual,
			Overdue: sinceHeartbeat > span(s.Config.TTL)*2/3, Numbered: s.Config.Numbered,
		})
	}
	return all
}

// since returns the time since an instant on the store's clock.
func (s semaphore) since(then protocol.Micros) time.Duration {
	return max(0, s.now.Sub(time.UnixMicro(int64(then))))
}

// A waiter is a queued acquire as shown.
type waiter struct {
	protocol.TicketInfo
	Place    int
	Instance string
	Waited   time.Duration // truncated to what is shown
}

func (w waiter) ID() string { return fmt.Sprintf("w:%d.%d", w.Session, w.Ticket) }

func (s semaphore) waiters(sessions map[protocol.Session]protocol.SessionInfo) (all []waiter) {
	for i, t := range s.Queue {
		all = append(all, waiter{t, s.ahead + i + 1, sessions[t.Session].Client.Instance, shownAge(s.since(t.Since))})
	}
	return all
}
