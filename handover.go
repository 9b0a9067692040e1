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

// The goroutine that acquires a permit need not be the one that uses it: in
//
//	for _, job := range jobs {
//		permit, err := s.Acquire(ctx, 1)
//		…
//		go func() { defer permit.Release(); job() }()
//	}
//
// the loop holds nothing. So a permit is attributed to the goroutine that acquired it
// only while nothing indicates that it was handed over:
//
//   - An acquire order counts if the permit held meanwhile is released by the
//     goroutine that acquired it. If another goroutine releases it, permits acquired
//     at the same place are attributed to no goroutine from then on.
//   - A deadlock is reported only if the goroutines involved have not started others
//     that still run. The runtime provides that only in a dump of all stacks.
//   - A goroutine that waits for more permits at the place where it acquired some runs
//     a loop. Such a loop more often hands its permits over than forgets them.

// handovers tracks which goroutines release the permits acquired at a place.
var handovers = releases{byPlace: map[string]int{}}

// releases counts, for each place, the permits that were released by the goroutine
// that acquired them. The count is handsOver if one was not.
type releases struct {
	mu      sync.Mutex
	byPlace map[string]int
}

const (
	handsOver = -1
	// settledAfter is the number of releases by the same goroutine after which only
	// one release in settledSample is checked: determining the id of a goroutine takes
	// microseconds.
	settledAfter  = 16
	settledSample = 64
	// maxPlaces bounds the number of places: a program that generates or evaluates
	// code at run time has any number of them.
	maxPlaces = 10_000
)

// markHandedOver records that permits of a place are handed over.
func (s *releases) markHandedOver(place string) { s.update(place, func(int) int { return handsOver }) }

// countOwn records a release by the goroutine that acquired the permit.
func (s *releases) countOwn(place string) {
	s.update(place, func(n int) int {
		if n == handsOver {
			return n
		}
		return min(n+1, settledAfter)
	})
}

func (s *releases) update(place string, change func(int) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, known := s.byPlace[place]; known || len(s.byPlace) < maxPlaces {
		s.byPlace[place] = change(n)
	}
}

func (s *releases) get(place string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPlace[place]
}

// noteReleaser checks which goroutine releases the permit. If it is the one that
// acquired the permit, the acquires made meanwhile count as acquire orders.
func (r *record) noteReleaser(acquired map[*Monitor]pendingOrder) {
	if r.caller.goroutine == 0 || r.handedOver || len(acquired) == 0 && handovers.get(r.place) == settledAfter && rand.Uint32()%settledSample != 0 {
		return
	}
	if goroutineID() != r.caller.goroutine {
		handovers.markHandedOver(r.place)
		return
	}
	handovers.countOwn(r.place)
	for wanted, o := range acquired {
		wanted.noteOrder(hold{name: r.monitor.name, monitor: r.monitor, weight: r.weight, stack: r.stack, rec: r}, o)
	}
}

// isHandedOver reports whether the permit may be held by another goroutine. w is the
// wait of the goroutine that acquired it. If that goroutine has started others, permits
// acquired at its place are attributed to no goroutine from then on.
func (r *record) isHandedOver(w *queuedWait, parents func() map[uint64]bool) bool {
	if r.monitor == w.monitor && r.place == w.stack.place() {
		return true
	}
	if !parents()[r.caller.goroutine] {
		return false
	}
	handovers.markHandedOver(r.place)
	recorded.clearGoroutine(r)
	return true
}

// parents returns the goroutines that have started others that still run. Goroutines
// that the standard library started do not count, such as the one with which net/http
// reads ahead for each handler, except those of [sync.WaitGroup.Go]. Goroutines that
// Sema started while a caller acquired do not count either.
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

// isOfLibrary reports whether a function belongs to the standard library or to Sema,
// by its name and place, such as "/src/fleet/workers.go:41 +0x39".
func isOfLibrary(function, place string) bool {
	file := place[:max(0, strings.LastIndexByte(place, ':'))]
	return isStandard(file) || callsite.Own(runtime.Frame{Function: function, File: file})
}

// isStandard reports whether a file belongs to the standard library, by the directory
// of a known file of it.
func isStandard(file string) bool {
	root := standardRoot()
	return root != "" && strings.HasPrefix(file, root)
}

var standardRoot = sync.OnceValue(func() string {
	pc := reflect.ValueOf(strings.Cut).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return strings.TrimSuffix(file, "strings/strings.go") // empty if built with -trimpath
})

// maxStackDump bounds the dump of all stacks, in bytes. Goroutines that do not fit are
// missed, so a report may be wrong in a program with tens of thousands of goroutines.
const maxStackDump = 64 << 20

func allStacks() []byte {
	for size := 1 << 20; ; size *= 4 {
		dump := make([]byte, min(size, maxStackDump))
		if n := runtime.Stack(dump, true); n < len(dump) || len(dump) == maxStackDump {
			return dump[:n]
		}
	}
}
