package fleet

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// Info describes a semaphore, as stored.
type Info struct {
	Name      string
	Config    Config
	Effective int64    // current capacity; below Config.Capacity while a ramp raises it
	InUse     int64    // permits held, and unused permits in the blocks of pools and regions
	Holders   []Holder // in the order of their leases
	Waiters   []Waiter // in the order of the queue
}

// A Holder is a lease: a permit, or a block of permits of a pool or region.
type Holder struct {
	Lease   LeaseID
	Weight  int64
	Since   time.Time // when it was granted, by the store's clock
	Pooled  bool      // a block
	Revoked bool      // revoked, and not yet confirmed by the holder
	Slots   []int64   // numbers of its permits, if the semaphore numbers them
	Caller
}

// A Waiter is a queued acquire.
type Waiter struct {
	Weight int64
	Since  time.Time // when it was queued, by the store's clock
	Caller
}

// A Caller describes the client of a lease or a queued acquire. Unknown fields are empty.
type Caller struct {
	Client    string            // unique instance of the client
	Kind      string            // "program", "region", …
	Host      string            // host of the client
	Process   int64             // process ID on that host
	Renewed   time.Time         // when the client last renewed its session, by the store's clock
	Site      string            // file and line of the acquire
	Labels    map[string]string // see [Labels]
	Work      string            // the client's own description of its work
	Principal string            // identity that a service has authenticated
}

// About returns the client's description, the call site and the labels in one line.
func (c Caller) About() string {
	return protocol.Details{Site: c.Site, Labels: textOf(c.Labels), Holder: c.Work}.About()
}

// A LeaseID identifies a lease of a semaphore. Later leases have higher IDs.
type LeaseID = protocol.Seq

// infoOf converts a snapshot to an Info.
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
	numbers, _ := s.Numbers() // unreadable numbers are omitted
	return numbers
}

// timeOf converts a time of the store's clock; 0 (unknown) becomes the zero time.
func timeOf(m protocol.Micros) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(m))
}

// textOf returns labels as sorted key=value pairs.
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

// labelsOf parses the output of textOf. It ignores text of another form.
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
