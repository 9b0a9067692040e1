package survey

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("s%06d", i))
	}
	return all
}

func byWaiting(a, b Load) int { return cmp.Compare(b.Waiting, a.Waiting) }

func TestSurvey_RanksOverAllNames(t *testing.T) {
	t.Parallel()
	var s Survey
	all := names(2001)
	now := time.Now()
	for _, name := range s.Due(now, all, nil) {
		l := Load{At: now}
		if name == all[2000] {
			l.Waiting = 25
		}
		s.Note(name, l)
	}
	if top := s.Top(all, 500, byWaiting); len(top) != 500 || top[0] != all[2000] || top[1] != all[0] {
		t.Errorf("top has %d names and starts with %v", len(top), top[:2])
	}
	if got := s.Totals(all); got != (Totals{Waiting: 25}) {
		t.Errorf("totals %+v", got)
	}
}

// TestSurvey_ReadsAllInTurn checks that each poll is bounded and reads every name regularly.
func TestSurvey_ReadsAllInTurn(t *testing.T) {
	t.Parallel()
	var s Survey
	all := names(9700)
	shown := all[:500]
	now := time.Now()
	reads := map[string]int{}
	for poll := range 40 {
		due := s.Due(now, all, shown)
		if len(due) > mostUnknown+mostKnown || poll > 2 && len(due) > mostKnown {
			t.Fatalf("poll %d reads %d semaphores", poll, len(due))
		}
		for _, name := range due {
			if name < all[500] {
				t.Fatalf("%s is due although it is shown", name)
			}
			reads[name]++
			s.Note(name, Load{At: now})
		}
		if unknown := s.Totals(all[500:]).Unknown; poll == 2 && unknown > 0 {
			t.Errorf("%d semaphores are unknown", unknown)
		}
		now = now.Add(time.Second)
	}
	for _, name := range all[500:] {
		if n := reads[name]; n < 2 || n > 4 {
			t.Fatalf("%s was read %d times", name, n)
		}
	}
}

func TestSurvey_UnknownComeLast(t *testing.T) {
	t.Parallel()
	var s Survey
	now := time.Now()
	s.Note("b", Load{At: now})
	s.Note("c", Load{At: now, Waiting: 3, Use: 1})
	s.Fail("d", now)
	s.Fail("c", now)
	all := []string{"a", "b", "c", "d", "e"}
	if top := s.Top(all, 10, byWaiting); !slices.Equal(top, []string{"c", "b", "d", "a", "e"}) {
		t.Errorf("top %v", top)
	}
	if got := s.Totals(all); got != (Totals{Waiting: 3, Full: 1, Unknown: 2}) {
		t.Errorf("totals %+v", got)
	}
}

func TestSurvey_ForgetsDeletedAndOldNames(t *testing.T) {
	t.Parallel()
	var s Survey
	now := time.Now()
	all := names(100)
	for _, name := range all {
		s.Note(name, Load{At: now})
	}
	if due := s.Due(now.Add(time.Hour), all, nil); len(due) != 100 {
		t.Errorf("after an hour %d semaphores are due, want 100", len(due))
	}
	s.Forget(all[0])
	s.Keep(all[:50])
	if got := s.Totals(all); got.Unknown != 51 {
		t.Errorf("totals %+v", got)
	}
}
