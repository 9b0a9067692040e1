package sema

import (
	"bufio"
	"bytes"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/sema-go/sema/internal/callsite"
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

// handovers has which goroutines release the permits that are acquired at a place.
var handovers = releases{byPlace: map[string]int{}}

// releases counts, for each place, the permits that were released by the goroutine
// that acquired them; handsOver if one was not.
type releases struct {
	mu      sync.Mutex
	byPlace map[string]int
}

const (
	handsOver = -1
	// settled is after how many releases by the same goroutine only one in rarely is
	// looked at: to find out the number of a goroutine takes microseconds.
	settled = 16
	rarely  = 64
	// mostPlaces bounds the places: code that is generated or evaluated as a program
	// runs has any number of them.
	mostPlaces = 10_000
)

// handOver notes that permits of a place are handed over.
func (s *releases) handOver(place string) { s.set(place, func(int) int { return handsOver }) }

// own notes a release by the goroutine that acquired the permit.
func (s *releases) own(place string) {
	s.set(place, func(n int) int {
		if n == handsOver {
			return n
		}
		return min(n+1, settled)
	})
}

func (s *releases) set(place string, change func(int) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.byPlace[place]; known || len(s.byPlace) < mostPlaces {
		s.byPlace[place] = change(n)
	}
}

func (s *releases) of(place string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPlace[place]
}

// learn looks which goroutine releases a permit. It confirms what was acquired
// meanwhile if that is the one that has acquired the permit.
func (r *record) learn(acquired map[*Monitor]pendingOrder) {
	if r.by.goroutine == 0 || r.handedOver || len(acquired) == 0 && handovers.of(r.place) == settled && rand.Uint32()%rarely != 0 {
		return
	}
	if goroutineID() != r.by.goroutine {
		handovers.handOver(r.place)
		return
	}
	handovers.own(r.place)
	for wanted, o := range acquired {
		wanted.noteOrder(hold{name: r.monitor.name, monitor: r.monitor, weight: r.weight, stack: r.stack, rec: r}, o.weight, o.at)
	}
}

// isHandedOver reports whether the permit may be held by another goroutine than the
// one that acquired it and now waits. If that has started others, its permits are
// booked on none from then on.
func (r *record) isHandedOver(w *queuedWait, parents func() map[uint64]bool) bool {
	if r.monitor == w.monitor && r.place == w.stack.place() {
		return true
	}
	if !parents()[r.by.goroutine] {
		return false
	}
	handovers.handOver(r.place)
	recorded.unbook(r)
	return true
}

// parents returns the goroutines that have started others that still run. Those that
// the standard library has started do not count, such as the one of net/http that reads
// ahead for each handler, except by [sync.WaitGroup.Go]; nor do those that Sema has
// started while a caller acquired.
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
		if err == nil && (function == "sync.(*WaitGroup).Go" || !isOfLibrary(function, strings.TrimSpace(lines.Text()))) {
			found[id] = true
		}
	}
	return found
}

// isOfLibrary reports whether a function is of the standard library or of Sema, by its
// name and place, "/src/fleet/workers.go:41 +0x39".
func isOfLibrary(function, place string) bool {
	file := place[:max(0, strings.LastIndexByte(place, ':'))]
	return isStandard(file) || callsite.Own(runtime.Frame{Function: function, File: file})
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
