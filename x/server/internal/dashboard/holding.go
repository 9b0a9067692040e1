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
	Tone            int    // the colour; the same number is at the same place of the list
	X, Width        string // in percent of the bar
}

// mostSegments bounds the segments of a bar. The last one has the rest.
const mostSegments = 7

// holdings returns the permits in use by client and by label. It needs all leases, and must be
// called before they are cut to a page.
func (s semaphore) holdings() (all []holding) {
	sessions := s.sessions()
	client := func(l protocol.LeaseInfo) string {
		c := sessions[l.Session].Client
		switch {
		case c.Kind == "service" && l.Details.Holder != "":
			return l.Details.Holder
		case c.Host != "" && c.Process != 0:
			return fmt.Sprintf("%s/%d", c.Host, c.Process)
		}
		return c.Instance
	}
	label := func(l protocol.LeaseInfo) string { return l.Details.Labels }
	for _, by := range []struct {
		name string
		of   func(protocol.LeaseInfo) string
	}{{"client", client}, {"label", label}} {
		if h := s.heldBy(by.name, by.of); len(h.Segments) > 1 || by.name == "client" && len(h.Segments) == 1 {
			all = append(all, h)
		}
	}
	return all
}

func (s semaphore) heldBy(by string, of func(protocol.LeaseInfo) string) holding {
	byName := map[string]*segment{}
	for _, l := range s.Leases {
		name := cmp.Or(of(l), "without a "+by)
		one := byName[name]
		if one == nil {
			one = &segment{Name: name}
			byName[name] = one
		}
		one.Permits += l.Weight
		one.Leases++
		one.Oldest = max(one.Oldest, shownAge(s.since(l.Since)))
	}
	h := holding{By: by}
	for _, one := range byName {
		h.Segments = append(h.Segments, *one)
	}
	slices.SortFunc(h.Segments, func(a, b segment) int {
		return cmp.Or(cmp.Compare(b.Permits, a.Permits), cmp.Compare(a.Name, b.Name))
	})
	if n := len(h.Segments); n > mostSegments {
		rest := segment{Name: strconv.Itoa(n-mostSegments+1) + " others"}
		for _, one := range h.Segments[mostSegments-1:] {
			rest.Permits += one.Permits
			rest.Leases += one.Leases
			rest.Oldest = max(rest.Oldest, one.Oldest)
		}
		h.Segments = append(h.Segments[:mostSegments-1], rest)
	}
	namele, at := float64(max(1, s.Effective, s.InUse)), 0.0
	for i := range h.Segments {
		one := &h.Segments[i]
		width := 100 * float64(one.Permits) / namele
		one.Tone, one.X, one.Width = i, fmt.Sprintf("%.2f%%", at), fmt.Sprintf("%.2f%%", width)
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
