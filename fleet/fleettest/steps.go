package fleettest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/sema-go/sema/fleet/protocol"
)

// A step is one step of a history. It identifies sessions, leases and tickets by their places,
// so that it has a meaning in every history and rapid can remove steps before it.
type step struct {
	do      action
	session int             // index of the session
	ops     []stepOp        // send
	unacked int             // send: how many of the last results are not acknowledged
	config  protocol.Config // configure
	stale   bool            // configure: based on an old version
	lease   int             // revoke: counted from the last
	atOnce  bool            // revoke
	time    protocol.Micros // advance
}

type action uint8

const (
	actSend action = iota
	actRepeat
	actRepeatOlder // repeats the batch before the last
	actOpen
	actInspect
	actConfigure
	actRevoke
	actEnd
	actDelete
	actAdvance // advances the clock
)

// A stepOp is an operation in a step.
type stepOp struct {
	op    protocol.Op
	place int // of the ticket to cancel, or the lease to release, split or settle, counted from the last
}

// actions lists each action as often as it is likely.
var actions = slices.Concat(
	slices.Repeat([]action{actSend}, 16), []action{actOpen, actOpen, actInspect, actConfigure, actConfigure, actRepeat, actRepeatOlder, actRevoke, actRevoke, actEnd, actDelete},
)

var timedActions = slices.Concat(actions, slices.Repeat([]action{actAdvance}, 10))

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

// steps returns a generator of steps. If timed, times are sixths of a TTL and values near them.
func steps(ttl protocol.Micros, timed bool) *rapid.Generator[step] {
	actions, waitings := actions, waitings
	if timed {
		actions, waitings = timedActions, []protocol.Micros{0, 0, 1, ttl / 2, 2 * ttl}
	}
	times := []protocol.Micros{
		1, ttl / 12, ttl / 6, ttl/6 + 1, ttl / 3, ttl * 2 / 3, ttl, ttl + 1, 2 * ttl, long, -1, -ttl / 6, -ttl, -long,
	}
	op := stepOps(waitings)
	return rapid.Custom(func(t *rapid.T) step {
		s := step{do: rapid.SampledFrom(actions).Draw(t, "do"), session: rapid.IntRange(0, 5).Draw(t, "session")}
		switch s.do {
		case actSend:
			s.ops = rapid.SliceOfN(op, 0, 4).Draw(t, "ops")
			s.unacked = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 9}).Draw(t, "unacked")
		case actConfigure:
			s.config = drawConfig(t, timed)
			s.stale = rapid.IntRange(0, 7).Draw(t, "stale") == 7
		case actRevoke:
			s.lease = rapid.IntRange(0, 5).Draw(t, "lease")
			s.atOnce = rapid.Bool().Draw(t, "at once")
		case actAdvance:
			s.time = rapid.SampledFrom(times).Draw(t, "time")
		}
		return s
	})
}

func stepOps(waitings []protocol.Micros) *rapid.Generator[stepOp] {
	return rapid.Custom(func(t *rapid.T) stepOp {
		w := stepOp{op: protocol.Op{Verb: rapid.SampledFrom(verbs).Draw(t, "verb")}}
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

// details draws the details of an acquire. Mostly one field is set, as by a client of the
// library or of a service.
func details(t *rapid.T) *protocol.Details {
	d := &protocol.Details{}
	text := rapid.SampledFrom(texts).Draw(t, "text")
	switch rapid.IntRange(0, 3).Draw(t, "of") {
	case 0:
		d.Holder = text
	case 1:
		d.Site, d.Labels = "main.go:44", text
	case 2:
		d.By, d.Key = text, "00ff"
	}
	if *d == (protocol.Details{}) {
		return nil
	}
	return d
}

// drawConfig draws a configuration, for a new semaphore or for a change.
func drawConfig(t *rapid.T, timed bool) protocol.Config {
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

// String returns the step in readable form. Places are counted as in the step: #0 is the first
// session, -0 the last lease.
func (s step) String() string {
	switch s.do {
	case actSend:
		var ops []string
		for _, w := range s.ops {
			ops = append(ops, fmt.Sprintf("%v", w))
		}
		return fmt.Sprintf("session #%d sends [%s], does not acknowledge the last %d", s.session, strings.Join(ops, ", "), s.unacked)
	case actRepeat:
		return fmt.Sprintf("session #%d repeats its last batch", s.session)
	case actRepeatOlder:
		return fmt.Sprintf("session #%d repeats the batch before its last", s.session)
	case actOpen:
		return "open a session"
	case actInspect:
		return "inspect"
	case actConfigure:
		return fmt.Sprintf("configure %+v, based on an old version: %t", s.config, s.stale)
	case actRevoke:
		return fmt.Sprintf("revoke lease -%d, at once: %t", s.lease, s.atOnce)
	case actEnd:
		return fmt.Sprintf("session #%d ends", s.session)
	case actDelete:
		return "delete"
	default:
		return fmt.Sprintf("%d µs pass", s.time)
	}
}

func (w stepOp) String() string {
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
		return "unknown verb"
	}
}
