package sema

import (
	"bufio"
	"bytes"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// A goroutine that acquires a permit need not be the one that works under it: in
//
//	for _, job := range jobs {
//		permit, err := s.Acquire(ctx, 1)
//		…
//		go func() { defer permit.Release(); job() }()
//	}
//
// the loop holds nothing. So a permit is booked on the goroutine that acquired it
// only where nothing shows that it is handed over:
//
//   - An order of acquires counts when the permit held meanwhile is released by the
//     goroutine that acquired it. Where another one releases it, permits that are
//     acquired at the same place are booked on no goroutine from then on.
//   - Before a deadlock is reported, the goroutines involved must not have started
//     others that still run. The runtime tells that only in a dump of all stacks.
//   - A goroutine that waits for more of what it has acquired at the same place runs a
//     loop, which more often sends its permits elsewhere than it forgets them.

// handovers are the places at which permits are acquired that other goroutines
// release.
var handovers = placeSet{places: map[string]bool{}}

type placeSet struct {
	mu     sync.Mutex
	places map[string]bool
}

// mostPlaces bounds a placeSet: code that is generated or evaluated as a program runs
// has any number of places.
const mostPlaces = 10_000

func (s *placeSet) add(place string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.places) < mostPlaces {
		s.places[place] = true
	}
}

func (s *placeSet) has(place string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.places[place]
}

// isHandedOver reports whether the permit may be held by another goroutine than the
// one that acquired it and now waits. If that has started others, its permits are
// booked on none from then on.
func (r *record) isHandedOver(w *queuedWait, parents func() map[uint64]bool) bool {
	if r.monitor == w.monitor && r.stack.place() == w.stack.place() {
		return true
	}
	if !parents()[r.by.goroutine] {
		return false
	}
	handovers.add(r.stack.place())
	books.unbook(r)
	return true
}

// parents returns the goroutines that have started others that still run. Those that
// the standard library has started do not count, such as the one of net/http that reads
// ahead for each handler, except by [sync.WaitGroup.Go].
func parents() map[uint64]bool {
	found := map[uint64]bool{}
	lines := bufio.NewScanner(bytes.NewReader(allStacks()))
	for lines.Scan() {
		creator, created := strings.CutPrefix(lines.Text(), "created by ") // main.dispatch in goroutine 18
		function, number, ok := strings.Cut(creator, " in goroutine ")
		if !created || !ok || !lines.Scan() {
			continue
		}
		id, err := strconv.ParseUint(number, 10, 64)
		if file := strings.TrimSpace(lines.Text()); err == nil && (function == "sync.(*WaitGroup).Go" || !isStandard(file)) {
			found[id] = true
		}
	}
	return found
}

// isStandard reports whether a file is one of the standard library, by where the file
// of one of its functions is.
func isStandard(file string) bool {
	root := standardRoot()
	return root != "" && strings.HasPrefix(file, root)
}

var standardRoot = sync.OnceValue(func() string {
	pc := reflect.ValueOf(strings.Cut).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return strings.TrimSuffix(file, "strings/strings.go") // empty if built with -trimpath
})

// mostStacks bounds the dump of all stacks. What does not fit is not seen, so that a
// report may be wrong in a program with some ten thousand goroutines.
const mostStacks = 64 << 20

func allStacks() []byte {
	for size := 1 << 20; ; size *= 4 {
		dump := make([]byte, min(size, mostStacks))
		if n := runtime.Stack(dump, true); n < len(dump) || len(dump) == mostStacks {
			return dump[:n]
		}
	}
}
