package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNumbered_Slots checks that the slots of a semaphore that is declared as numbered are printed
// by all commands.
func TestNumbered_Slots(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sema.yaml")
	if err := os.WriteFile(file, []byte("semaphores: [{name: gpu, capacity: 8, ttl: 10m, numbered: true}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := served(t, "--config", file)
	type slotted struct{ Slots []int64 }
	type numbered struct {
		Name     string
		Numbered bool
		Holders  []slotted
	}
	if lease := decode[slotted](t, s.must("acquire", "gpu", "-w", "2", "-o", "json")); !slices.Equal(lease.Slots, []int64{0, 1}) {
		t.Errorf("the first lease has the slots %v", lease.Slots)
	}
	id := strings.TrimSpace(s.must("acquire", "gpu", "-w", "3"))
	if lease := decode[slotted](t, s.must("renew", "gpu", id, "-o", "json")); !slices.Equal(lease.Slots, []int64{2, 3, 4}) {
		t.Errorf("the renewed lease has the slots %v", lease.Slots)
	}
	s.must("set", "gpu", "--capacity", "6") // the semaphore stays numbered
	shown := decode[numbered](t, s.must("show", "gpu", "-o", "json"))
	if len(shown.Holders) != 2 || !shown.Numbered || !slices.Equal(shown.Holders[0].Slots, []int64{0, 1}) || !slices.Equal(shown.Holders[1].Slots, []int64{2, 3, 4}) {
		t.Errorf("it shows %+v", shown)
	}
	for _, format := range []string{"table", "wide"} {
		lines := strings.Split(s.must("show", "gpu", "-o", format), "\n")
		if row := strings.Join(lines[1:2], ""); !strings.Contains(row, "concurrency, numbered") {
			t.Errorf("-o %s: the semaphore is %q", format, row)
		}
		var columns []string
		for _, line := range lines[4:7] {
			columns = append(columns, strings.Join(strings.Fields(line)[1:3], " "))
		}
		if !slices.Equal(columns, []string{"WEIGHT SLOTS", "2 0-1", "3 2-4"}) {
			t.Errorf("-o %s: the holders are\n%s", format, strings.Join(lines, "\n"))
		}
	}
	s.must("acquire", "db", "-n", "1", "--ttl", "10m")
	if plain := s.must("show", "db"); strings.Contains(plain, "SLOTS") || strings.Contains(plain, "numbered") {
		t.Errorf("it shows\n%s", plain)
	}
	listed := decode[[]numbered](t, s.must("ls", "-o", "json"))
	if len(listed) != 2 || listed[0].Name != "db" || listed[0].Numbered || !listed[1].Numbered {
		t.Errorf("listed are %+v", listed)
	}
}
