// Package survey ranks the semaphores of a store by their load. A store reads them one
// by one, so that a viewer cannot read all of them all the time. A Survey keeps the last
// known load of each and decides which to read next: those on the screen, those that are
// unknown, and some of the others in turn. So a semaphore is ranked by its load wherever
// its name is in the list, and each look at the store is bounded.
package survey

import (
	"slices"
	"sync"
	"time"
)

const (
	// mostUnknown is how many unknown semaphores are read in one look.
	mostUnknown = 4000
	// mostKnown is how many known semaphores are read again in one look.
	mostKnown = 500
	// fresh is how long a load counts as new.
	fresh = time.Second
)

// A Load is how much a semaphore was used when it was read.
type Load struct {
	At      time.Time
	Waiting int64
	Use     float64 // part of the capacity that is in use; above 1 after a shrink
	Failed  bool    // it could not be read; the rest is what was known before
}

// A Survey is safe for concurrent use. The zero value is ready.
type Survey struct {
	mu    sync.Mutex
	loads map[string]Load
}

// Note records what was read of a semaphore.
func (s *Survey) Note(name string, l Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads == nil {
		s.loads = map[string]Load{}
	}
	s.loads[name] = l
}

// Fail records that a semaphore could not be read. What was known of it stays.
func (s *Survey) Fail(name string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads == nil {
		s.loads = map[string]Load{}
	}
	l := s.loads[name]
	l.At, l.Failed = at, true
	s.loads[name] = l
}

// Forget removes a semaphore that was deleted.
func (s *Survey) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.loads, name)
}

// Keep forgets all semaphores but those with these names, which are sorted.
func (s *Survey) Keep(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loads) <= len(names) {
		return // few are gone
	}
	for name := range s.loads {
		if _, listed := slices.BinarySearch(names, name); !listed {
			delete(s.loads, name)
		}
	}
}

// Due returns which of the names to read now, besides those that are shown anyway:
// unknown ones first, then those that were read the longest ago. The order of names
// decides between equals.
func (s *Survey) Due(now time.Time, names, shown []string) []string {
	known := map[string]bool{}
	for _, name := range shown {
		known[name] = true
	}
	// What nobody looked at for longer than a round over all names is unknown again.
	old := now.Add(-30*time.Second - 2*fresh*time.Duration(len(names)/mostKnown))
	type candidate struct {
		name string
		at   time.Time
	}
	var unknown []string
	var again []candidate
	s.mu.Lock()
	for _, name := range names {
		if known[name] {
			continue
		}
		switch l, read := s.loads[name]; {
		case !read || l.At.Before(old):
			if len(unknown) < mostUnknown {
				unknown = append(unknown, name)
			}
		case now.Sub(l.At) >= fresh:
			again = append(again, candidate{name, l.At})
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(again, func(a, b candidate) int { return a.at.Compare(b.at) })
	for _, c := range again[:min(len(again), mostKnown)] {
		unknown = append(unknown, c.name)
	}
	return unknown
}

// Top returns the first most of the names in the order of compare, and for equals in
// the order of names. Unknown ones come last.
func (s *Survey) Top(names []string, most int, compare func(a, b Load) int) []string {
	type ranked struct {
		name  string
		load  Load
		known bool
	}
	all := make([]ranked, len(names))
	s.mu.Lock()
	for i, name := range names {
		l, known := s.loads[name]
		all[i] = ranked{name, l, known}
	}
	s.mu.Unlock()
	slices.SortStableFunc(all, func(a, b ranked) int {
		switch {
		case a.known && b.known:
			return compare(a.load, b.load)
		case a.known:
			return -1
		case b.known:
			return 1
		}
		return 0
	})
	all = all[:min(len(all), most)]
	top := make([]string, len(all))
	for i, r := range all {
		top[i] = r.name
	}
	return top
}

// Totals are over all names.
type Totals struct {
	Waiting int64
	Full    int64 // semaphores without a free permit
	Unknown int   // semaphores that were not read yet
}

// Totals sums up what is known of the names.
func (s *Survey) Totals(names []string) (t Totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		l, known := s.loads[name]
		switch {
		case !known:
			t.Unknown++
			continue
		case l.Use >= 1:
			t.Full++
		}
		t.Waiting += l.Waiting
	}
	return t
}
