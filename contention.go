package sema

import (
	"cmp"
	"math/rand/v2"
	"runtime/pprof"
	"slices"
	"sync"
	"time"
)

// A SiteWait is the total time that callers have waited at one call site.
type SiteWait struct {
	Site  string // dir/file.go:line
	Waits int64  // number of waits
	Total time.Duration
}

// Contention returns the call sites at which callers of diagnosed semaphores have
// waited since the process started, the longest total first. At [DiagnoseSampled] the
// figures are extrapolated from the sample.
func Contention() []SiteWait { return contention.list() }

// contention adds up waits, by site for Contention and by whole stack for the profile
// sema.contention.
//
// A runtime/pprof profile counts keys per stack and has no other value. So a wait adds
// one key per quantum, and its remainder is rounded at random. When there are too many
// keys, half of them are dropped and the quantum doubles.
var contention = waitTotals{bySite: map[string]*SiteWait{}, quantum: time.Millisecond}

type waitTotals struct {
	mu      sync.Mutex
	bySite  map[string]*SiteWait
	quantum time.Duration // wait time per key of the profile
	keys    []*quantumKey
}

// A quantumKey must not be zero-sized: pointers to zero-sized values may be equal.
type quantumKey struct{ _ byte }

const maxContentionKeys = 1 << 14

var contentionProfile = newProfile("sema.contention")

// add adds a wait of the calling goroutine, weighted by times.
func (t *waitTotals) add(st stack, waited time.Duration, times int64) {
	t.addToSite(st, waited, times)
	depth := libraryDepth()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addToProfileLocked(contentionProfile, waited*time.Duration(times), depth+1)
}

// addToSite adds a wait to its site, but not to the profile. The profile takes the
// stack of the calling goroutine, which in the case of a ticket did not wait.
func (t *waitTotals) addToSite(st stack, waited time.Duration, times int64) {
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

// addToProfileLocked adds keys for a wait to the profile.
func (t *waitTotals) addToProfileLocked(profile *pprof.Profile, waited time.Duration, depth int) {
	whole := min(int(waited/t.quantum), maxContentionKeys/4)
	if rest := waited % t.quantum; rand.Int64N(int64(t.quantum)) < int64(rest) {
		whole++
	}
	for range whole {
		key := new(quantumKey)
		profile.Add(key, depth+1)
		t.keys = append(t.keys, key)
	}
	if len(t.keys) <= maxContentionKeys {
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
