package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// A state is the part of sema's JSON that the tests use.
type state struct {
	Name, Kind, TTL               string
	Capacity, Free, Waiting, Ramp int64
	InUse                         int64  `json:"in_use"`
	MaxWaiters                    *int64 `json:"max_waiters"`
	Draining                      bool
	MoreHolders                   int `json:"more_holders"`
	MoreWaiters                   int `json:"more_waiters"`
	Holders, Waiters              []participant
	Effective                     int64 `json:"effective_capacity"`
}

type participant struct {
	Lease       uint64
	Weight      int64
	Since       time.Time
	Host, About string
	Process     int
}

func decode[T any](t testing.TB, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return value
}

func (s shell) show(name string) state {
	s.t.Helper()
	return decode[state](s.t, s.must("show", name, "-o", "json"))
}

func TestLs_ListsAndShowShows(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		if got := s.must("ls", "-o", "json"); got != "[]\n" {
			t.Errorf("nothing is listed as %q", got)
		}
		if r := s.expect(0, []string{"no semaphores", "hint: 'sema run"}, "ls"); r.out != "" {
			t.Errorf("nothing is listed as %q", r.out)
		}
		before := time.Now().Add(-time.Second)
		holder := holding(s, "team/a", "-n", "3", "-w", "2")
		s.must("run", "team/b", "-n", "1", "--", "true")
		s.must("run", "other", "-n", "1", "--", "true")

		all := decode[[]state](t, s.must("ls", "team/", "-o", "json"))
		if len(all) != 2 || all[0].Name != "team/a" || all[0].InUse != 2 || all[0].Capacity != 3 || all[0].Free != 1 || all[1].Name != "team/b" || all[1].InUse != 0 {
			t.Errorf("listed are %+v", all)
		}
		table := strings.Split(s.must("ls"), "\n")
		if strings.Join(strings.Fields(table[0]), " ") != "NAME IN USE CAPACITY WAITING STATUS" || len(table) != 5 ||
			strings.Join(strings.Fields(table[2]), " ") != "team/a 2 3 0 open" {
			t.Errorf("the table is\n%s", strings.Join(table, "\n"))
		}
		got := s.show("team/a")
		if len(got.Holders) != 1 || got.Holders[0].Process != holder.Pid || got.Holders[0].Weight != 2 || got.Holders[0].Since.Before(before) || got.Holders[0].Since.After(time.Now()) {
			t.Errorf("it shows %+v", got)
		}
		for _, format := range []string{"table", "wide"} {
			if shown := s.must("show", "team/a", "-o", format); !strings.Contains(shown, pidText(holder)) || strings.Contains(shown, "\x1b") {
				t.Errorf("it shows\n%s", shown)
			}
		}
		if empty := s.must("show", "team/b", "-o", "json"); !strings.Contains(empty, `"holders": []`) {
			t.Errorf("an unused semaphore is shown as\n%s", empty)
		}
	})
}

func TestLs_Pages(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		for _, name := range []string{"a", "b", "c", "other"} {
			s.must("run", "team/"+name, "-n", "1", "--", "true")
		}
		listed := func(r result) (names string) {
			t.Helper()
			for _, one := range decode[[]state](t, r.out) {
				names += one.Name + " "
			}
			return names
		}
		first := s.expect(0, []string{"sema: 2 more semaphores", "hint: 'sema ls team/ --after team/b' lists them"}, "ls", "team/", "--limit", "2", "-o", "json")
		if got := listed(first); got != "team/a team/b " {
			t.Errorf("first %s", got)
		}
		rest := s.expect(0, nil, "ls", "team/", "--after", "team/b", "-o", "json")
		if got := listed(rest); got != "team/c team/other " || rest.err != "" {
			t.Errorf("then %s, %s", got, rest.err)
		}
		s.expect(0, []string{"sema: 1 more semaphore after"}, "ls", "--after", "team/a", "--limit", "2")
	})
}

func TestShow_Pages(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		var leases []string
		for range 3 {
			number, _, _ := strings.Cut(strings.TrimSpace(s.must("acquire", "x", "-n", "3")), ".")
			leases = append(leases, number)
		}
		for range 2 {
			s.start("run", "x", "--", "true")
		}
		eventually(t, "two wait", func() bool { return s.show("x").Waiting == 2 })
		got := decode[state](t, s.must("show", "x", "--limit", "1", "-o", "json"))
		if len(got.Holders) != 1 || got.MoreHolders != 2 || len(got.Waiters) != 1 || got.MoreWaiters != 1 || got.Waiting != 2 {
			t.Errorf("it shows %+v", got)
		}
		text := s.expect(0, []string{"hint: 'sema show x --after " + leases[0] + "' lists the next holders"}, "show", "x", "--limit", "1")
		if !strings.Contains(text.out, "… and 2 more\n") || !strings.Contains(text.out, "… and 1 more\n") {
			t.Errorf("it shows\n%s", text.out)
		}
		if next := decode[state](t, s.must("show", "x", "--after", leases[0], "-o", "json")); len(next.Holders) != 2 || strconv.FormatUint(next.Holders[0].Lease, 10) != leases[1] {
			t.Errorf("then %+v", next)
		}
	})
}

func TestShow_Waiters(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		holding(s, "x", "-n", "1")
		first := s.start("run", "x", "--", "true")
		eventually(t, "the first waits", func() bool { return s.show("x").Waiting == 1 })
		second := s.start("run", "x", "--", "true")
		eventually(t, "the second waits", func() bool { return s.show("x").Waiting == 2 })
		got := s.show("x")
		if first := got.Waiters[0].Since; first.IsZero() || got.Waiters[1].Since.Before(first) {
			t.Errorf("queued at %v and %v", first, got.Waiters[1].Since)
		}
		if got.Waiters[0].Process != first.Pid || got.Waiters[1].Process != second.Pid || got.Holders[0].About != "command=sh" || got.Kind != "concurrency" || got.TTL != "15s" {
			t.Errorf("it shows %+v", got)
		}
	})
}

func TestSet_ChangesTheCapacityForAll(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		holding(s, "x", "-n", "1")
		waiter := s.start("run", "x", "--", "echo", "mine")
		eventually(t, "it waits", func() bool { return s.show("x").Waiting == 1 })
		s.must("set", "x", "--capacity", "2")
		if got := waiter.line(); got != "mine" || waiter.wait() != 0 {
			t.Errorf("output %q", got)
		}
		s.must("set", "x", "--capacity", "0")
		s.expect(75, nil, "run", "x", "--no-wait", "--", "true")
		s.expect(1, []string{`no semaphore "y"`}, "set", "y", "--capacity", "1")
	})
}

func TestSet_RampAndBoundAreStored(t *testing.T) {
	t.Parallel()
	amongMachines(t, func(t *testing.T, s shell) {
		holding(s, "x", "-n", "1")
		s.must("set", "x", "--ramp", "1", "--max-waiters", "1", "--capacity", "1000")
		got := s.show("x")
		if got.Ramp != 1 || got.MaxWaiters == nil || *got.MaxWaiters != 1 || got.Capacity != 1000 || got.Effective > 100 {
			t.Errorf("it shows %+v", got)
		}
		s.must("set", "x", "--ramp", "0", "--capacity", "1")
		s.start("run", "x", "--", "true")
		eventually(t, "it waits", func() bool { return s.show("x").Waiting == 1 })
		s.must("set", "x", "--max-waiters", "none")
		if got := s.show("x"); got.MaxWaiters != nil {
			t.Errorf("the bound is %d", *got.MaxWaiters)
		}
		s.must("set", "x", "--max-waiters", "1")
		s.expect(75, []string{"the queue", "is full", "hint: retry later", "--max-waiters"}, "run", "x", "--", "true")
	})
}

func TestDrain_RejectsAndWaits(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		holder := holding(s, "x", "-n", "1")
		waiter := s.start("run", "x", "--", "true")
		eventually(t, "it waits", func() bool { return s.show("x").Waiting == 1 })
		s.expect(75, []string{"permits are still held: 1", "sema resume x"}, "drain", "x", "--wait", "100ms")
		if code := waiter.wait(); code != 75 || !strings.Contains(waiter.err.text(), "draining") {
			t.Errorf("the waiter ended with %d: %s", code, waiter.err.text())
		}
		s.expect(75, []string{"sema resume x"}, "run", "x", "--", "true")
		drain := s.start("drain", "x")
		holder.in.Close()
		if code := drain.wait(); code != 0 || !strings.Contains(drain.err.text(), "no permit is held") {
			t.Errorf("it ended with %d: %s", code, drain.err.text())
		}
		if !s.show("x").Draining {
			t.Error("it is not draining")
		}
		s.must("resume", "x")
		s.must("run", "x", "--", "true")
	})
}

// TestSet_MaxWaiters checks that 0 means no waiters, and that 'none' removes the bound.
func TestSet_MaxWaiters(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		holding(s, "x", "-n", "1")
		s.must("set", "x", "--max-waiters", "0")
		if got := s.show("x"); got.MaxWaiters == nil || *got.MaxWaiters != 0 {
			t.Errorf("it shows %+v", got)
		}
		s.expect(75, []string{"the queue", "is full"}, "run", "x", "--", "true")
		s.must("set", "x", "--max-waiters", "none")
		if got := s.show("x"); got.MaxWaiters != nil {
			t.Errorf("it shows %+v", got)
		}
		s.start("run", "x", "--", "true")
		eventually(t, "it waits", func() bool { return s.show("x").Waiting == 1 })
	})
}

// TestLs_BadFiles checks that files of a host directory that are not semaphores are reported, and
// the others are listed.
func TestLs_BadFiles(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	s.must("run", "good", "-n", "1", "--", "true")
	directory := strings.TrimPrefix(s.store, "host:")
	for name, content := range map[string]string{"foreign.sema": "notes of another program", "a b.sema": "", "other.txt": "not ours"} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := s.expect(0, []string{"sema: warning: ", "foreign.sema", "a b.sema", "hint: "}, "ls", "-o", "json")
	if all := decode[[]state](t, r.out); len(all) != 1 || all[0].Name != "good" {
		t.Errorf("listed are %+v", all)
	}
	if strings.Contains(r.err, "other.txt") {
		t.Errorf("stderr is\n%s", r.err)
	}
	if r := s.expect(0, nil, "ls", "go"); strings.Contains(r.err, "foreign") {
		t.Errorf("with another prefix, stderr is\n%s", r.err)
	}
	if r := s.run("show", "foreign"); r.code == 0 || !strings.Contains(r.err, "foreign.sema") || !strings.Contains(r.err, "hint: ") {
		t.Errorf("exit code %d, stderr\n%s", r.code, r.err)
	}
}

func TestRm_AsksIfInUse(t *testing.T) {
	t.Parallel()
	host, redis := onHost(t), onRedis(t)
	for _, s := range []shell{host, redis} {
		holding(s, "x", "-n", "1")
		s.must("run", "y", "-n", "1", "--", "true")
		s.must("rm", "y")
		s.expect(1, []string{`no semaphore "y"`}, "rm", "y")
	}
	host.expect(64, []string{"it is in use"}, "rm", "x", "--yes")
	redis.expect(64, []string{"1 held", "--yes"}, "rm", "x")
	redis.must("rm", "x", "--yes")
	redis.expect(1, nil, "show", "x")
}

func TestWatch_PrintsChanges(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		s.expect(1, []string{"no semaphore"}, "watch", "x")
		holder := holding(s, "x", "-n", "2")
		watch := s.start("watch", "x", "-o", "json", "--every", "20ms")
		if got := decode[state](t, watch.line()); got.InUse != 1 {
			t.Errorf("first %+v", got)
		}
		holding(s, "x", "-w", "1")
		if got := decode[state](t, watch.line()); got.InUse != 2 || len(got.Holders) != 2 {
			t.Errorf("then %+v", got)
		}
		holder.in.Close()
		if got := decode[state](t, watch.line()); got.InUse != 1 {
			t.Errorf("then %+v", got)
		}
		plain := s.start("watch", "x")
		if got := plain.line(); !strings.HasSuffix(got, "1 of 2 in use, 0 waiting, open") {
			t.Errorf("as text %q", got)
		}
	})
}

func TestMigrate_Postgres(t *testing.T) {
	t.Parallel()
	s := shell{t: t, store: pgtest.Shared.URL(t)}
	with := "?"
	if strings.Contains(s.store, "?") {
		with = "&"
	}
	s.store += with + "sema_schema=cli_" + strings.ToLower(strings.ReplaceAll(time.Now().Format("150405.000"), ".", "_")) + "&sema_migrate=off"
	s.expect(69, []string{"run sema migrate"}, "run", "x", "--", "true")
	s.expect(0, []string{"up to date"}, "migrate")
	s.expect(0, []string{"up to date"}, "migrate")
	s.must("run", "x", "-n", "1", "--", "true")
	if got := s.show("x"); got.Capacity != 1 {
		t.Errorf("it shows %+v", got)
	}
}
