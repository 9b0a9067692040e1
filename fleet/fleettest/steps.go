package fleettest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/sema-go/sema/fleet/protocol"
)

// A step is what happens next in a history. It names sessions, leases and
// tickets by their places among those there are, so that it means something in
// every history, and rapid can leave out others before it.
type step struct {
	do      deed
	who     int             // which session
	wishes  []wish          // say
	unheard int             // say: how many of the last results are not acknowledged
	config  protocol.Config // configure
	stale   bool            // configure: based on an old version
	lease   int             // revoke: counted from the last
	atOnce  bool            // revoke
	time    protocol.Micros // pass
}

type deed uint8

const (
	say deed = iota
	again
	older // say the one before the last again
	open
	look
	configure
	revoke
	bye
	remove
	pass // as time does
)

// A wish is an op in a step.
type wish struct {
	op    protocol.Op
	place int // of the ticket to cancel, or the lease to release, split or settle, counted from the last
}

// deeds are as likely as they are often in here.
var deeds = slices.Concat(
	slices.Repeat([]deed{say}, 16), []deed{open, open, look, configure, configure, again, older, revoke, revoke, bye, remove},
)

var timedDeeds = slices.Concat(deeds, slices.Repeat([]deed{pass}, 10))

var verbs = []protocol.Verb{
	protocol.Acquire, protocol.Acquire, protocol.Acquire, protocol.Acquire, protocol.Acquire, protocol.Acquire,
	protocol.Release, protocol.Release, protocol.Release, protocol.Cancel, protocol.Split, protocol.Settle, unknownVerb,
}

const unknownVerb protocol.Verb = 99

var (
	weights  = []int64{1, 1, 1, 1, 2, 2, 2, 3, 4, 6, 0, -1, protocol.MaxCapacity}
	portions = []int64{0, 0, 0, 1, 2, 5, -1}
	costs    = []int64{0, 0, 1, 2, 3, 6, -1, protocol.MaxCapacity}
	texts    = []string{"", "a", `b "quoted" and 'quoted'`, "ceü\nd%s{}"}

	waitings = []protocol.Micros{0, 0, 0, long}
)

// steps makes a step. In timed ones, time is in sixths of a TTL and near it.
func steps(ttl protocol.Micros, timed bool) *rapid.Generator[step] {
	deeds, waitings := deeds, waitings
	if timed {
		deeds, waitings = timedDeeds, []protocol.Micros{0, 0, 1, ttl / 2, 2 * ttl}
	}
	times := []protocol.Micros{
		1, ttl / 12, ttl / 6, ttl/6 + 1, ttl / 3, ttl * 2 / 3, ttl, ttl + 1, 2 * ttl, long, -1, -ttl / 6, -ttl, -long,
	}
	wish := wishes(waitings)
	return rapid.Custom(func(t *rapid.T) step {
		s := step{do: rapid.SampledFrom(deeds).Draw(t, "do"), who: rapid.IntRange(0, 5).Draw(t, "who")}
		switch s.do {
		case say:
			s.wishes = rapid.SliceOfN(wish, 0, 4).Draw(t, "wishes")
			s.unheard = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 9}).Draw(t, "unheard")
		case configure:
			s.config = change(t, timed)
			s.stale = rapid.IntRange(0, 7).Draw(t, "stale") == 7
		case revoke:
			s.lease = rapid.IntRange(0, 5).Draw(t, "lease")
			s.atOnce = rapid.Bool().Draw(t, "at once")
		case pass:
			s.time = rapid.SampledFrom(times).Draw(t, "time")
		}
		return s
	})
}

func wishes(waitings []protocol.Micros) *rapid.Generator[wish] {
	return rapid.Custom(func(t *rapid.T) wish {
		w := wish{op: protocol.Op{Verb: rapid.SampledFrom(verbs).Draw(t, "verb")}}
		switch w.op.Verb {
		case protocol.Acquire:
			w.op.Weight = rapid.SampledFrom(weights).Draw(t, "weight")
			w.op.Details = details(t)
			switch rapid.IntRange(0, 5).Draw(t, "how") {
			case 3:
				w.op.Wait = rapid.SampledFrom(waitings).Draw(t, "wait")
			case 4:
				w.op.Try = true
			case 5:
				w.op.Pooled = true
				w.op.Least = rapid.SampledFrom(portions).Draw(t, "least")
			}
		case protocol.Release:
			w.op.Weight = rapid.SampledFrom(portions).Draw(t, "part")
			w.place = rapid.IntRange(0, 5).Draw(t, "lease")
		case protocol.Split:
			w.op.Weight = rapid.SampledFrom(weights).Draw(t, "weight")
			w.place = rapid.IntRange(0, 5).Draw(t, "lease")
		case protocol.Settle:
			w.op.Weight = rapid.SampledFrom(costs).Draw(t, "cost")
			w.op.Least = rapid.SampledFrom(portions).Draw(t, "granted")
			w.place = rapid.IntRange(0, 5).Draw(t, "lease")
		case protocol.Cancel:
			w.place = rapid.IntRange(0, 5).Draw(t, "ticket")
		}
		return w
	})
}

// details of an acquire. Mostly one field is set, as a client of the library or of a
// service does.
func details(t *rapid.T) (d protocol.Details) {
	text := rapid.SampledFrom(texts).Draw(t, "text")
	switch rapid.IntRange(0, 3).Draw(t, "of") {
	case 0:
		d.Holder = text
	case 1:
		d.Site, d.Labels = "main.go:44", text
	case 2:
		d.By, d.Key = text, "00ff"
	}
	return d
}

// change is what can be configured, of a new semaphore and later.
func change(t *rapid.T, timed bool) protocol.Config {
	c := protocol.Config{
		Capacity:   rapid.SampledFrom([]int64{3, 1, 2, 4, 5, 7, 0, 0, -1}).Draw(t, "capacity"),
		MaxWaiters: rapid.SampledFrom([]int64{0, 0, 0, 1, 2, protocol.NoWaiters}).Draw(t, "waiters"),
		Draining:   rapid.IntRange(0, 7).Draw(t, "draining") == 7,
	}
	if rapid.IntRange(0, 7).Draw(t, "share") == 7 {
		c.Whole = c.Capacity + 2
	}
	if timed {
		c.Ramp = rapid.SampledFrom([]int64{0, 0, 1, 3}).Draw(t, "ramp")
	}
	return c
}

// String is a step for people. Places are counted as in the step: #0 is the first
// session, -0 the last lease that was told of.
func (s step) String() string {
	switch s.do {
	case say:
		var ops []string
		for _, w := range s.wishes {
			ops = append(ops, fmt.Sprintf("%v", w))
		}
		return fmt.Sprintf("session #%d says [%s], but does not acknowledge the last %d", s.who, strings.Join(ops, ", "), s.unheard)
	case again:
		return fmt.Sprintf("session #%d repeats its last batch", s.who)
	case older:
		return fmt.Sprintf("session #%d repeats the batch before its last", s.who)
	case open:
		return "somebody opens a session"
	case look:
		return "somebody looks"
	case configure:
		return fmt.Sprintf("configured: %+v, by an old version: %t", s.config, s.stale)
	case revoke:
		return fmt.Sprintf("lease -%d is revoked, at once: %t", s.lease, s.atOnce)
	case bye:
		return fmt.Sprintf("session #%d says goodbye", s.who)
	case remove:
		return "deleted"
	default:
		return fmt.Sprintf("%d µs pass", s.time)
	}
}

func (w wish) String() string {
	switch op := w.op; op.Verb {
	case protocol.Acquire:
		how := ""
		if op.Try {
			how += " try"
		}
		if op.Pooled {
			how += fmt.Sprintf(" pooled, at least %d", op.Least)
		}
		if op.Wait > 0 {
			how += fmt.Sprintf(" within %d µs", op.Wait)
		}
		return fmt.Sprintf("acquire %d%s", op.Weight, how)
	case protocol.Cancel:
		return fmt.Sprintf("cancel ticket -%d", w.place)
	case protocol.Release:
		return fmt.Sprintf("release %d of lease -%d", op.Weight, w.place)
	case protocol.Split:
		return fmt.Sprintf("split %d off lease -%d", op.Weight, w.place)
	case protocol.Settle:
		return fmt.Sprintf("settle lease -%d of %d at %d", w.place, op.Least, op.Weight)
	default:
		return "what nobody knows"
	}
}
