package waitfor_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/waitfor"
)

var now = time.Unix(1_800_000_000, 0)

func client(process int64, ago time.Duration) waitfor.Client {
	return waitfor.Client{Instance: "i", Host: "h", Process: process, Weight: 1, Since: now.Add(-ago)}
}

func sem(name string, holders, waiters []waitfor.Client) waitfor.Semaphore {
	return waitfor.Semaphore{Name: name, Holders: holders, Waiters: waiters}
}

type list = []waitfor.Client

const long = time.Minute

// deadlock returns the AB-BA order of two processes.
func deadlock() []waitfor.Semaphore {
	return []waitfor.Semaphore{sem("a", list{client(1, long)}, list{client(2, long)}), sem("b", list{client(2, long)}, list{client(1, long)})}
}

func TestCycles_TwoProcesses(t *testing.T) {
	t.Parallel()
	found := waitfor.Cycles(deadlock(), now)
	if len(found) != 1 || len(found[0].Steps) != 2 {
		t.Fatalf("%v", found)
	}
	for _, s := range found[0].Steps {
		want := waitfor.Step{Client: "process 1 of h", Holds: "a", Waits: "b", Waited: long}
		if strings.HasPrefix(s.Client, "process 2") {
			want = waitfor.Step{Client: "process 2 of h", Holds: "b", Waits: "a", Waited: long}
		}
		if s != want {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
}

func TestCycles_ThreeProcessesAndBystanders(t *testing.T) {
	t.Parallel()
	found := waitfor.Cycles([]waitfor.Semaphore{
		sem("a", list{client(1, long)}, list{client(3, long), client(9, long)}),
		sem("b", list{client(2, long)}, list{client(1, long)}),
		sem("c", list{client(3, long)}, list{client(2, long)}),
		sem("d", list{client(7, long)}, list{client(8, long)}),
	}, now)
	if len(found) != 1 || len(found[0].Steps) != 3 || strings.Contains(found[0].String(), "process 9") {
		t.Errorf("%v", found)
	}
}

// TestCycles_NoFalseAlarm checks states in which some client can go on.
func TestCycles_NoFalseAlarm(t *testing.T) {
	t.Parallel()
	service := client(1, long)
	service.Service = true
	heavy := client(3, long)
	heavy.Weight = 4
	for name, all := range map[string][]waitfor.Semaphore{
		"goroutines of a process share a semaphore": {sem("a", list{client(1, long)}, list{client(1, long), client(1, long)})},
		"another goroutine holds without waiting":   {sem("a", list{client(1, long)}, list{client(2, long)}), sem("b", list{client(2, long), client(1, long)}, list{client(1, long)})},
		"the waits are short":                       {sem("a", list{client(1, long)}, list{client(2, time.Second)}), sem("b", list{client(2, long)}, list{client(1, time.Second)})},
		"another holder will release":               {sem("a", list{client(1, long), client(5, long)}, list{client(2, long)}), sem("b", list{client(2, long)}, list{client(1, long)})},
		"permits are free":                          {{Name: "a", Free: 1, Holders: list{client(1, long)}, Waiters: list{client(2, long)}}, sem("b", list{client(2, long)}, list{client(1, long)})},
		"clients of HTTP without a name":            {sem("a", list{service}, list{client(2, long)}), sem("b", list{client(2, long)}, list{service})},
		"a queue":                                   {sem("a", list{client(1, long)}, list{client(2, long)}), sem("b", list{client(2, long)}, list{client(3, long)})},
	} {
		if found := waitfor.Cycles(all, now); len(found) != 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
	// A free holder does not help a waiter that needs more than it has.
	all := deadlock()
	all[0].Waiters[0].Weight = 4
	all[0].Holders = append(all[0].Holders, client(5, long))
	if found := waitfor.Cycles(all, now); len(found) != 1 {
		t.Errorf("the first waiter needs 4: %v", found)
	}
}
