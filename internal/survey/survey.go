// Package survey ranks the semaphores of a store by their load. A store reads semaphores one
// by one, so that a viewer cannot read all of them all the time. A Survey keeps the last known
// load of each semaphore and decides which to read next: those on the screen, unknown ones,
// and some of the others in turn. So a semaphore is ranked by its load wherever its name is in
// the list, and the number of reads per poll is bounded.
package survey

import (
	"slices"
	"sync"
	"time"
)

const (
	// mostUnknown bounds the unknown semaphores that are read per poll.
	mostUnknown = 4000
	// mostKnown bounds the known semaphores that are read again per poll.
	mostKnown = 500
	// fresh is the age up to which a load is not read again.
	fresh = time.Second
)

// A Load is the load of a semaphore when it was read.
type Load struct {
	At      time.Time
	Waiting int64
	Use     float64 // part of the capacity in use; above 1 after a shrink
	Failed  bool    // the last read failed; the other fields are from the read before
}

// A Survey stores the load of semaphores. It is safe for concurrent use. The zero value is
// ready to use.
type Survey struct {
	mu    sync.Mutex
	loads map[string]Load
}

// Note records the load of a semaphore.
func (s *Survey) Note(name string, l Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loads == nil {
		s.loads = map[string]Load{}
	}
	s.loads[name] = l
}

// Fail records that a semaphore could not be read. Its last known load is kept.
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

// Keep removes all semaphores except those with these names, which must be sorted.
func (s *Survey) Keep(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.loads) <= len(names) {
		return // few were deleted
	}
	for name := range s.loads {
		if _, listed := slices.BinarySearch(names, name); !listed {
			delete(s.loads, name)
		}
	}
}

// Due returns the names to read now, besides those that are shown anyway: unknown ones first,
// then those that were read the longest ago. The order of names decides between equals.
func (s *Survey) Due(now time.Time, names, shown []string) []string {
	known := map[string]bool{}
	for _, name := range shown {
		known[name] = true
	}
	// A load that is older than a round over all names is unknown again.
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

// Top returns the first most of the names in the order of compare. Equal ones stay in the order
// of names. Unknown ones come last.
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

// Totals are sums over all names.
type Totals struct {
	Waiting int64
	Full    int64 // semaphores without a free permit
	Unknown int   // semaphores that were not read yet
}

// Totals returns the sums of the known loads of the names.
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
