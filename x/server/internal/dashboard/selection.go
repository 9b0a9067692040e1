package dashboard

import (
	"time"

	"github.com/sema-go/sema/internal/filter"
)

// A selection is the semaphores of a listing that a view shows, in its order, with their totals.
// Pages and viewers share it until the next listing, so that a page costs as much as its own rows.
type selection struct {
	totals
	rows   []*row
	groups []item // the rows in groups; nil: the view has no groups
}

// totals are those of all semaphores of a selection.
type totals struct {
	Semaphores    int
	Waiting, Full int64 // waiters, and semaphores without a free permit
	Problems      int64 // semaphores with a problem
	Grants        float64
	Failures      float64 // acquires that were not granted, a second
	WaitP99       time.Duration
	Measured      bool
}

// mostSelections bounds how many selections a listing keeps: viewers choose the filter.
const mostSelections = 16

// A selectionKey is the part of a view that selects and arranges semaphores.
type selectionKey struct {
	query
	prefix string
}

// selected returns what a view selects, given its filter.
func (l *listing) selected(v view, wanted filter.Filter) *selection {
	key := selectionKey{v.query, v.prefix}
	key.From = 0
	l.mu.Lock()
	s := l.selections[key]
	l.mu.Unlock()
	if s != nil {
		return s
	}
	rows := l.matching(v, wanted)
	s = &selection{totals: totalsOf(rows), rows: rows}
	if v.Group {
		s.groups = grouped(rows, key.query)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.selections) < mostSelections {
		l.selections[key] = s
	}
	return s
}

func totalsOf(rows []*row) totals {
	t := totals{Semaphores: len(rows)}
	for _, one := range rows {
		t.Waiting += one.waiting
		if one.full() {
			t.Full++
		}
		if one.Problem != "" {
			t.Problems++
		}
		t.Grants += one.live.Grants
		t.Failures += one.live.Failures
		t.WaitP99 = max(t.WaitP99, one.live.WaitP99)
		t.Measured = t.Measured || one.live.Measured
	}
	return t
}

// size returns the number of items.
func (s *selection) size() int {
	if s.groups != nil {
		return len(s.groups)
	}
	return len(s.rows)
}

// page returns the items of the page that begins with an item.
func (s *selection) page(from int) []item {
	end := min(from+pageSize, s.size())
	if s.groups != nil {
		return s.groups[from:end]
	}
	items := make([]item, 0, end-from)
	for _, one := range s.rows[from:end] {
		items = append(items, item{row: one})
	}
	return items
}
