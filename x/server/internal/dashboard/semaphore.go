package dashboard

import (
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A semaphore is one as a page shows it.
type semaphore struct {
	protocol.Snapshot
	Name    string
	Failure string    // why it could not be looked at
	now     time.Time // by the engine's clock

	holding, waiting int // leases and those in line, of which not all may be listed
}

func seen(name string, s protocol.Snapshot, now time.Time) semaphore {
	return semaphore{Snapshot: s, Name: name, now: now, holding: len(s.Leases), waiting: len(s.Queue)}
}

// mostListed are the holders and waiters that a page shows: those who have been
// there longest are first, and are the ones to look for.
const mostListed = 100

// shortened has those who are listed alone, so that what is kept is little.
func (s semaphore) shortened() semaphore {
	s.Leases = slices.Clone(s.Leases[:min(len(s.Leases), mostListed)])
	s.Queue = slices.Clone(s.Queue[:min(len(s.Queue), mostListed)])
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

// MoreHolders and MoreWaiters are those who are not listed.
func (s semaphore) MoreHolders() int { return s.holding - len(s.Leases) }
func (s semaphore) MoreWaiters() int { return s.waiting - len(s.Queue) }

func (s semaphore) ID() string             { return "s:" + s.Name }
func (s semaphore) URL() string            { return "/ui/semaphore?name=" + url.QueryEscape(s.Name) }
func (s semaphore) Waiting() int64         { return int64(s.waiting) }
func (s semaphore) IsRate() bool           { return s.Config.Kind == protocol.Rate }
func (s semaphore) Window() string         { return age(span(s.Config.Window)) }
func (s semaphore) TTL() string            { return age(span(s.Config.TTL)) }
func span(m protocol.Micros) time.Duration { return time.Duration(m) * time.Microsecond }

// Free is what the next who comes may have.
func (s semaphore) Free() int64 {
	if s.Config.Draining {
		return 0
	}
	return max(0, s.Effective-s.InUse)
}

// use is the part of what may be in use that is.
func (s semaphore) use() float64 {
	switch {
	case s.Effective > 0:
		return float64(s.InUse) / float64(s.Effective)
	case s.InUse > 0:
		return 1
	}
	return 0
}

// Percent is that for people.
func (s semaphore) Percent() string { return fmt.Sprintf("%.0f %%", 100*s.use()) }

// Tone is how urgent it is: people wait, it is nearly full, or all is well.
func (s semaphore) Tone() string {
	switch {
	case s.Failure != "", s.waiting > 0, s.InUse > s.Effective:
		return "critical"
	case s.use() >= 0.8:
		return "tense"
	}
	return "calm"
}

// A state is something to know of a semaphore. Nothing is said by a colour alone.
type state struct{ Text, Why, Tone string }

// States are none if there is nothing special.
func (s semaphore) States() (all []state) {
	c := s.Config
	if s.Failure != "" {
		return []state{{"not read", s.Failure, "critical"}}
	}
	switch {
	case c.Draining && s.InUse == 0:
		all = append(all, state{"drained", "Nothing is in use, and nobody is let in until it is resumed.", "tense"})
	case c.Draining:
		all = append(all, state{"draining", "Nobody is let in; what is in use goes on until it is given back.", "tense"})
	case c.Capacity == 0:
		all = append(all, state{"paused", "The capacity is 0: nobody is let in until it is raised.", "tense"})
	}
	switch {
	case s.InUse > s.Effective && c.Capacity > 0:
		all = append(all, state{"over by " + count(s.InUse-s.Effective), "More is in use than the capacity, which was lowered: nobody is let in until enough is back.", "critical"})
	case s.Effective < c.Capacity:
		all = append(all, state{"ramping to " + count(c.Capacity), fmt.Sprintf("The capacity rises by %s a second.", count(c.Ramp)), "tense"})
	case s.InUse == s.Effective && c.Capacity > 0 && !c.Draining:
		all = append(all, state{"full", "All permits are in use.", s.Tone()})
	}
	return all
}

// A bar is what is in use of what may be, in percent of its width.
type bar struct{ Used, OverAt, Over, ComingAt, Coming string }

// Bar has room for the capacity, or for what is in use if that is more.
func (s semaphore) Bar() (b bar) {
	whole := float64(max(1, s.Config.Capacity, s.Effective, s.InUse))
	percent := func(n int64) string { return fmt.Sprintf("%.2f%%", 100*float64(max(0, n))/whole) }
	b.Used = percent(min(s.InUse, s.Effective))
	b.OverAt, b.Over = b.Used, percent(s.InUse-s.Effective)
	reached := max(s.InUse, s.Effective)
	b.ComingAt, b.Coming = percent(reached), percent(s.Config.Capacity-reached)
	return b
}

// BarText is the bar for those who do not see it.
func (s semaphore) BarText() string {
	return fmt.Sprintf("%s of %s in use, %s waiting", count(s.InUse), count(s.Effective), count(s.Waiting()))
}

// A holder is a lease, with what is known of who has it. Two that are equal look the
// same.
type holder struct {
	protocol.LeaseInfo
	Name      string // of the semaphore
	TTL       time.Duration
	Instance  string
	Held      time.Duration // as far as it is shown
	Silent    time.Duration // since it was last heard of, as far as it is shown
	Overdue   bool          // it should have been heard of long ago
	MayChange bool
}

func (h holder) ID() string { return fmt.Sprintf("l:%d", h.Seq) }

// Granted is when it was.
func (h holder) Granted() time.Time { return time.UnixMicro(int64(h.LeaseInfo.Since)).UTC() }

// Left is after how long it is taken for dead if it stays silent.
func (h holder) Left() time.Duration { return max(0, h.TTL-h.Silent) }

// Take is the address at which it can be taken back.
func (h holder) Take() string {
	return fmt.Sprintf("/ui/confirm?do=release&name=%s&lease=%d", url.QueryEscape(h.Name), h.Seq)
}

// sessions are those that are listed.
func (s semaphore) sessions() map[protocol.Session]protocol.SessionInfo {
	all := make(map[protocol.Session]protocol.SessionInfo, len(s.Sessions))
	for _, one := range s.Sessions {
		all[one.Session] = one
	}
	return all
}

// holders are those who are listed, the oldest first.
func (s semaphore) holders(mayChange bool) (all []holder) {
	sessions := s.sessions()
	for _, l := range s.Leases {
		session := sessions[l.Session]
		silent := s.since(session.Renewed)
		all = append(all, holder{
			LeaseInfo: l, Name: s.Name, TTL: span(s.Config.TTL), Instance: session.Client.Instance,
			Held: shownAge(s.since(l.Since)), Silent: shownAge(silent), MayChange: mayChange,
			Overdue: silent > span(s.Config.TTL)*2/3,
		})
	}
	return all
}

// since is how long ago something was.
func (s semaphore) since(then protocol.Micros) time.Duration {
	return max(0, s.now.Sub(time.UnixMicro(int64(then))))
}

// A waiter is one in line.
type waiter struct {
	protocol.TicketInfo
	Place    int
	Instance string
}

func (w waiter) ID() string { return fmt.Sprintf("w:%d.%d", w.Session, w.Ticket) }

func (s semaphore) waiters() (all []waiter) {
	sessions := s.sessions()
	for i, t := range s.Queue {
		all = append(all, waiter{t, i + 1, sessions[t.Session].Client.Instance})
	}
	return all
}
