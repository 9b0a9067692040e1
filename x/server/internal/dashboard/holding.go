package dashboard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
)

// A holding is a bar of the permits of a semaphore. Its segments are clients, or labels.
type holding struct {
	By       string // what the segments are
	Segments []segment
}

// A segment is the leases of one client, or with one label.
type segment struct {
	Name            string
	Permits, Leases int64
	Oldest          time.Duration
	Usual           time.Duration // the 99th percentile of recent holds, if Oldest is far longer; 0: it is not
	Tone            int           // the colour
	X, Width        string        // in percent of the bar
	RevokeURL       string        // asks whether to revoke the leases; "": the segment has several groups, or no leases
	recent          int64         // permits over the last minutes, added up
}

const (
	// mostSegments bounds the segments of a bar. The last one has the rest.
	mostSegments = 7
	// restTone is the colour of the rest.
	restTone = mostSegments - 1
)

// A grouping assigns each lease to a group.
type grouping struct {
	By string
	of func(protocol.Client, protocol.LeaseInfo) string
}

// groupings are the ways to group holders.
var groupings = [...]grouping{{"client", clientOf}, {"label", labelOf}}

// clientOf returns the process of a lease, or the holder that a client of the HTTP API has named.
func clientOf(c protocol.Client, l protocol.LeaseInfo) string {
	switch {
	case c.Kind == "service" && l.Details.Holder != "":
		return l.Details.Holder
	case c.Host != "" && c.Process != 0:
		return fmt.Sprintf("%s/%d", c.Host, c.Process)
	}
	return cmp.Or(c.Instance, "without a client")
}

func labelOf(_ protocol.Client, l protocol.LeaseInfo) string {
	return cmp.Or(l.Details.Labels, "without a label")
}

// holdings returns the permits in use by client and by label. It needs all leases, and must be
// called before they are cut to a page. Those that have held more in the last minutes come first.
func (s semaphore) holdings(u *usage) (all []holding) {
	sessions := s.sessions()
	for i, by := range groupings {
		groups := map[string]*segment{}
		for _, l := range s.Leases {
			name := by.of(sessions[l.Session].Client, l)
			one := groups[name]
			if one == nil {
				one = &segment{Name: name, RevokeURL: s.revokeGroupURL(by.By, name)}
				groups[name] = one
			}
			one.Permits += l.Weight
			one.recent += l.Weight
			one.Leases++
			one.Oldest = max(one.Oldest, shownAge(s.since(l.Since)))
		}
		u.addTo(groups, i)
		if h := s.newHolding(by.By, groups, u.tonesOf(i)); len(h.Segments) > 1 || i == 0 && len(h.Segments) == 1 {
			all = append(all, h)
		}
	}
	return all
}

// newHolding arranges groups in a bar.
func (s semaphore) newHolding(by string, groups map[string]*segment, tones *tones) holding {
	h := holding{By: by}
	for _, one := range groups {
		if heldLong(one.Oldest, s.p99) {
			one.Usual = s.p99
		}
		h.Segments = append(h.Segments, *one)
	}
	slices.SortFunc(h.Segments, func(a, b segment) int {
		return cmp.Or(cmp.Compare(b.recent, a.recent), cmp.Compare(a.Name, b.Name))
	})
	if n := len(h.Segments); n > mostSegments {
		rest := segment{Name: strconv.Itoa(n-mostSegments+1) + " others"}
		for _, one := range h.Segments[mostSegments-1:] {
			rest.Permits += one.Permits
			rest.Leases += one.Leases
			rest.Oldest, rest.Usual = max(rest.Oldest, one.Oldest), max(rest.Usual, one.Usual)
		}
		rest.Tone = restTone
		h.Segments = append(h.Segments[:mostSegments-1], rest)
	}
	tones.assign(h.Segments)
	whole, at := float64(max(1, s.Effective, s.InUse)), 0.0
	for i := range h.Segments {
		one := &h.Segments[i]
		width := 100 * float64(one.Permits) / whole
		one.X, one.Width = fmt.Sprintf("%.2f%%", at), fmt.Sprintf("%.2f%%", width)
		at += width
	}
	return h
}

// Text describes the bar for screen readers.
func (h holding) Text() string {
	text := "Permits by " + h.By + ":"
	for _, one := range h.Segments {
		text += fmt.Sprintf(" %s %s;", one.Name, count(one.Permits))
	}
	return text
}

// A tones remembers the colours of groups, so that a group keeps its colour while others come and go.
type tones struct{ of map[string]int }

// assign sets the colours of segments. The rest has its own.
func (t *tones) assign(all []segment) {
	kept, used := map[string]int{}, map[int]bool{}
	for _, one := range all {
		used[restTone] = used[restTone] || one.Tone == restTone
	}
	for _, one := range all {
		if tone, known := t.of[one.Name]; known && one.Tone != restTone && !used[tone] {
			kept[one.Name], used[tone] = tone, true
		}
	}
	for i := range all {
		one := &all[i]
		if one.Tone == restTone {
			continue
		}
		tone, known := kept[one.Name]
		for !known && used[tone] {
			tone++
		}
		kept[one.Name], used[tone] = tone, true
		one.Tone = tone
	}
	t.of = kept
}
