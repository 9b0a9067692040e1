package sema

import (
	"cmp"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

// A SiteWait is how long callers at one place have waited, in all.
type SiteWait struct {
	Site  string // dir/file.go:line
	Waits int64
	Total time.Duration
}

// Contention lists where callers of diagnosed semaphores have waited since the
// process began, the longest total first. With Sampled the figures are scaled
// up from the sample.
func Contention() []SiteWait { return contention.list() }

// contention adds waits up, by site for Contention and by whole stack for the
// profile sema.contention.
//
// A runtime/pprof profile counts keys per stack and knows no other value. So a
// wait is entered as one key per quantum, its remainder rounded at random. When
// the keys become too many, half of them are dropped and the quantum doubles.
var contention = waitTotals{bySite: map[string]*SiteWait{}, quantum: time.Millisecond}

type waitTotals struct {
	mu      sync.Mutex
	bySite  map[string]*SiteWait
	quantum time.Duration // what one key of the profile stands for
	keys    []*quantumKey
}

// A quantumKey must have a size: pointers to zero-sized values may be equal.
type quantumKey struct{ _ byte }

const contentionKeys = 1 << 14

var contentionProfile = newProfile("sema.contention")

// add enters a wait of the calling goroutine.
func (t *waitTotals) add(st stack, waited time.Duration, times int64) {
	t.count(st, waited, times)
	depth := libraryDepth()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enter(contentionProfile, waited*time.Duration(times), depth+1)
}

// count adds a wait to its site, without the profile: that takes the stack of
// the calling goroutine, which did not wait for a ticket.
func (t *waitTotals) count(st stack, waited time.Duration, times int64) {
	site := st.site()
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.bySite[site]
	if sum == nil {
		sum = &SiteWait{Site: site}
		t.bySite[site] = sum
	}
	sum.Waits += times
	sum.Total += waited * time.Duration(times)
}

func (t *waitTotals) enter(profile *pprof.Profile, waited time.Duration, depth int) {
	whole := min(int(waited/t.quantum), contentionKeys/4)
	if rest := waited % t.quantum; rand.Int64N(int64(t.quantum)) < int64(rest) {
		whole++
	}
	for range whole {
		key := new(quantumKey)
		profile.Add(key, depth+1)
		t.keys = append(t.keys, key)
	}
	if len(t.keys) <= contentionKeys {
		return
	}
	rand.Shuffle(len(t.keys), func(i, j int) { t.keys[i], t.keys[j] = t.keys[j], t.keys[i] })
	half := len(t.keys) / 2
	for _, key := range t.keys[half:] {
		profile.Remove(key)
	}
	clear(t.keys[half:])
	t.keys = t.keys[:half]
	t.quantum *= 2
}

func (t *waitTotals) list() []SiteWait {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]SiteWait, 0, len(t.bySite))
	for _, sum := range t.bySite {
		list = append(list, *sum)
	}
	slices.SortFunc(list, func(a, b SiteWait) int { return cmp.Compare(b.Total, a.Total) })
	return list
}
