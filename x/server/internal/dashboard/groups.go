package dashboard

import (
	"slices"
	"strings"
	"time"
)

// An item is a row of the overview's table: a semaphore, or a group of them.
type item struct {
	row    *row
	group  *group
	member bool // the row belongs to the group above
}

// A group is the semaphores whose names have a prefix, up to the first ":" or "/".
type group struct {
	Prefix           string
	Size             int
	InUse, Effective int64
	Waiting          int64
	Problem          string // of the most urgent semaphore
	Open             bool
	URL              string // opens or closes it
	problemOf        string
	rank             int
	grants           float64       // a second, of all semaphores
	waitP99          time.Duration // the longest of all semaphores
	measured         bool
}

// ID returns the id of the group's row. No semaphore has the same id.
func (g *group) ID() string { return "g:" + g.Prefix }

// ProblemOf returns the name of the most urgent semaphore.
func (g *group) ProblemOf() string { return g.problemOf }

// Percent returns the fraction of the permits that is in use.
func (g *group) Percent() string { return g.whole().Percent() }

// Bar, BarText and Tone return what [semaphore] returns, for all semaphores together.
func (g *group) Bar() bar        { return g.whole().Bar() }
func (g *group) BarText() string { return g.whole().BarText() }
func (g *group) Tone() string    { return g.whole().Tone() }

// WaitText and RateText return the longest wait and the grants a second, as rows show them.
func (g *group) WaitText() string {
	if g.waitP99 == 0 {
		return "–"
	}
	return Brief(g.waitP99)
}

func (g *group) RateText() string {
	if !g.measured {
		return "–"
	}
	return perSecond(g.grants)
}

func (g *group) whole() semaphore {
	s := semaphore{waiting: g.Waiting}
	s.InUse, s.Effective, s.Config.Capacity = g.InUse, g.Effective, g.Effective
	return s
}

// prefixOf returns the prefix of a name, with the separator; "" if it has none.
func prefixOf(name string) string {
	if at := strings.IndexAny(name, ":/"); at >= 0 {
		return name[:at+1]
	}
	return ""
}

// grouped arranges rows in groups, each at the place of its first row. A prefix of one semaphore
// is no group.
func grouped(rows []*row, q query) (items []item) {
	members := map[string][]*row{}
	for _, one := range rows {
		if prefix := prefixOf(one.Name); prefix != "" {
			members[prefix] = append(members[prefix], one)
		}
	}
	open := strings.Fields(q.Open)
	for _, one := range rows {
		prefix := prefixOf(one.Name)
		of := members[prefix]
		switch {
		case len(of) < 2:
			items = append(items, item{row: one})
		case of[0] == one:
			g := newGroup(prefix, of)
			g.Open, g.URL = slices.Contains(open, prefix), q.toggled(prefix).at(0)
			items = append(items, item{group: g})
			if g.Open {
				for _, one := range of {
					items = append(items, item{row: one, member: true})
				}
			}
		}
	}
	return items
}

func newGroup(prefix string, of []*row) *group {
	g := &group{Prefix: prefix, Size: len(of)}
	for _, one := range of {
		g.InUse += one.InUse
		g.Effective += one.Effective
		g.Waiting += one.waiting
		g.grants += one.live.Grants
		g.waitP99 = max(g.waitP99, one.live.WaitP99)
		g.measured = g.measured || one.live.Measured
		if one.rank > g.rank {
			g.rank, g.Problem, g.problemOf = one.rank, one.Problem, one.Name
		}
	}
	return g
}
