package fleet

import (
	"context"
	"slices"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// shareWith returns a share of blocks with these weights, acquired at these times.
func shareWith(t *testing.T, weights []int64, since ...protocol.Micros) (*share, *sema.Semaphore) {
	t.Helper()
	s, all := &share{}, sema.New(1000)
	for i, weight := range weights {
		p, err := all.TryAcquire(context.Background(), weight)
		if err != nil {
			t.Fatal(err)
		}
		s.blocks = append(s.blocks, leasedBlock{p, since[i]})
		s.held += weight
	}
	return s, all
}

// noted notes the usage in a reply.
func (s *share) noted(inUse, wanted, first int64) *share {
	s.note(protocol.Reply{InUse: inUse, Wanted: wanted, First: first})
	return s
}

func TestShare_TooSmallForTheFirstWaiterGrantsNothingMore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ inUse, first, want int64 }{{3, 5, 3}, {6, 5, 4}, {3, 4, 4}} {
		s, _ := shareWith(t, []int64{4}, 0)
		s.idle = 1000
		if got := s.noted(c.inUse, c.first, c.first).target(1000, 100, 0, protocol.Reply{}); got != c.want {
			t.Errorf("%d in use, the first waiter needs %d: target %d of 4, want %d", c.inUse, c.first, got, c.want)
		}
	}
}

func TestShare_ReturnsSurplusAfterSurplusAge(t *testing.T) {
	t.Parallel()
	const now = 10 * surplusAge
	s, _ := shareWith(t, []int64{64}, 0)
	s.low, s.idle = 100, now-surplusAge+1
	s.noted(4, 0, 0).noted(52, 0, 0).noted(4, 2, 0) // 12 were always free
	if got := s.target(now, 100, 0, protocol.Reply{}); got != 64 {
		t.Errorf("target %d, want all: the surplus is too young", got)
	}
	s.idle--
	plenty := protocol.Reply{Config: protocol.Config{Capacity: 144}, InUse: 64} // a reserve of 20
	if got := s.target(now, 100, 0, plenty); got != 64 {
		t.Errorf("target %d, want all: the surplus is within the reserve", got)
	}
	if s.low != 58 || s.idle != now {
		t.Errorf("low %d since %d, want what is free since now", s.low, s.idle)
	}
	s.low, s.idle = 12, now-surplusAge
	if got := s.target(now, 100, 0, protocol.Reply{}); got != 64-10 {
		t.Errorf("target %d, want all but the surplus beyond a reserve of 1/32", got)
	}
	if s.low != 48 || s.idle != now {
		t.Errorf("low %d since %d, want what is free of the rest", s.low, s.idle)
	}
}

func TestShare_RecalledKeepsEvenShareAndYoungBlocks(t *testing.T) {
	t.Parallel()
	const recalled, later, quantum = 500, 550, 100
	for _, c := range []struct {
		what          string
		now           protocol.Micros
		inUse, wanted int64
		even, want    int64
	}{
		{"all blocks for a quantum", recalled + quantum - 1, 10, 0, 3, 10},
		{"a later block for a quantum, too", recalled + quantum, 4, 0, 3, 4},
		{"an even share after that", later + quantum, 10, 0, 3, 3},
		{"at most all blocks", later + quantum, 10, 0, 30, 10},
		{"without half of the free permits", later + quantum, 3, 2, 10, 7},
	} {
		s, _ := shareWith(t, []int64{6, 4}, 0, later)
		if got := s.noted(c.inUse, c.wanted, min(1, c.wanted)).target(c.now, quantum, recalled, protocol.Reply{Share: c.even}); got != c.want {
			t.Errorf("%s: target %d, want %d", c.what, got, c.want)
		}
	}
}

func TestShare_ReleasesTheYoungestBlocksFirst(t *testing.T) {
	t.Parallel()
	s, all := shareWith(t, []int64{6, 4}, 1, 2)
	for _, step := range []struct {
		back    int64
		weights []int64
		since   []protocol.Micros
	}{
		{1, []int64{6, 3}, []protocol.Micros{1, 2}},
		{5, []int64{4}, []protocol.Micros{1}},
		{0, []int64{4}, []protocol.Micros{1}},
		{9, nil, nil},
	} {
		s.release(step.back)
		var weights []int64
		var since []protocol.Micros
		for _, b := range s.blocks {
			weights, since = append(weights, b.Weight()), append(since, b.since)
		}
		if !slices.Equal(weights, step.weights) || !slices.Equal(since, step.since) || s.held != all.Stats().InUse {
			t.Errorf("after %d: %v since %v, held %d of %d", step.back, weights, since, s.held, all.Stats().InUse)
		}
	}
}
