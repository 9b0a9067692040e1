package fleet

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// Info describes a semaphore as the store has it.
type Info struct {
	Name      string
	Config    Config
	Effective int64    // capacity at the moment, below Config.Capacity while a ramp raises it
	InUse     int64    // permits held, and blocks that pools and regions have ready
	Holders   []Holder // in the order of their leases
	Waiters   []Waiter // in the order of the queue
}

// A Holder is a lease: a permit, or a block of permits of a pool or region.
type Holder struct {
	Lease   LeaseID
	Weight  int64
	Since   time.Time // when it was granted, by the store's clock
	Pooled  bool      // a block
	Revoked bool      // the holder has not confirmed it yet
	Slots   []int64   // the numbers of its permits, if the semaphore numbers them
	Caller
}

// A Waiter is a queued acquire.
type Waiter struct {
	Weight int64
	Since  time.Time // when it was queued, by the store's clock
	Caller
}

// A Caller is the client behind a lease or a queued acquire. What it does not state is
// empty.
type Caller struct {
	Client    string            // instance of the client, unique
	Kind      string            // what the client is: "program", "region", …
	Host      string            // of the client
	Process   int64             // of the client, on its host
	Renewed   time.Time         // when the client last renewed its session, by the store's clock
	Site      string            // file and line of the acquire
	Labels    map[string]string // see [Labels]
	Work      string            // the client's own description of what it does
	Principal string            // identity that a service has authenticated
}

// About returns what the client states of the acquire in one line: its description, the
// call site, the labels.
func (c Caller) About() string {
	return protocol.Details{Site: c.Site, Labels: textOf(c.Labels), Holder: c.Work}.About()
}

// A LeaseID identifies a lease of a semaphore. Later leases have higher ones.
type LeaseID = protocol.Seq

// infoOf returns a snapshot as Info.
func infoOf(name string, s protocol.Snapshot) Info {
	info := Info{
		Name: name, Config: configOf(s.Config), Effective: s.Effective, InUse: s.InUse,
		Holders: make([]Holder, 0, len(s.Leases)), Waiters: make([]Waiter, 0, len(s.Queue)),
	}
	sessions := make(map[protocol.Session]protocol.SessionInfo, len(s.Sessions))
	for _, session := range s.Sessions {
		sessions[session.Session] = session
	}
	for _, l := range s.Leases {
		info.Holders = append(info.Holders, Holder{
			Lease: l.Seq, Weight: l.Weight, Since: timeOf(l.Since), Pooled: l.Pooled, Revoked: l.Revoked, Slots: slotsOf(l.Slots),
			Caller: callerOf(sessions[l.Session], l.Details),
		})
	}
	for _, t := range s.Queue {
		info.Waiters = append(info.Waiters, Waiter{Weight: t.Weight, Since: timeOf(t.Since), Caller: callerOf(sessions[t.Session], t.Details)})
	}
	return info
}

func callerOf(s protocol.SessionInfo, d protocol.Details) Caller {
	return Caller{
		Client: s.Client.Instance, Kind: s.Client.Kind, Host: s.Client.Host, Process: s.Client.Process, Renewed: timeOf(s.Renewed),
		Site: d.Site, Labels: labelsOf(d.Labels), Work: d.Holder, Principal: d.By,
	}
}

func slotsOf(s protocol.Slots) []int64 {
	numbers, _ := s.Numbers() // what cannot be read is left out
	return numbers
}

// timeOf returns a time of the store's clock, zero if it is unknown.
func timeOf(m protocol.Micros) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m))
}

// textOf returns labels as key=value, in order.
func textOf(labels map[string]string) string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		value := labels[key]
		if strings.ContainsAny(value, " \"=") || strconv.Quote(value) != `"`+value+`"` {
			value = strconv.Quote(value)
		}
		b.WriteString(key + "=" + value)
	}
	return b.String()
}

// labelsOf parses what textOf wrote. Text of another form is left out.
func labelsOf(text string) map[string]string {
	if text == "" {
		return nil
	}
	labels := map[string]string{}
	for text != "" {
		key, rest, ok := strings.Cut(text, "=")
		if !ok {
			break
		}
		value, after, _ := strings.Cut(rest, " ")
		if quoted, err := strconv.QuotedPrefix(rest); err == nil {
			value, _ = strconv.Unquote(quoted)
			after = strings.TrimPrefix(rest[len(quoted):], " ")
		}
		labels[key] = value
		text = after
	}
	return labels
}
