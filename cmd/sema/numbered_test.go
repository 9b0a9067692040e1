package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// gpuNames is a mask of devices by name, as an outer scheduler sets it.
const gpuNames = "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b,GPU-c,GPU-d"

// TestRun_SlotsOfHoldersDiffer checks that commands get numbers and devices that no other command
// has, and that those of a command that was killed are free.
func TestRun_SlotsOfHoldersDiffer(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		s.env = append(s.env, gpuNames, "SEMA_SLOTS=7")
		run := func(slots string, flags ...string) []string {
			args := append([]string{"run", "gpu", "-n", "4", "--slots", slots, "--devices", "cuda"}, flags...)
			return append(args, "--", "sh", "-c", "echo $SEMA_SLOTS $CUDA_VISIBLE_DEVICES $$; read end")
		}
		first, second := s.start(run("2")...), s.start(run("1")...)
		one, two := strings.Fields(first.line()), strings.Fields(second.line())
		if len(one) != 3 || len(two) != 3 {
			t.Fatalf("the commands write %q and %q", one, two)
		}
		var all []string
		for _, holder := range [][]string{one, two} {
			numbers, names := strings.Split(holder[0], ","), strings.Split(holder[1], ",")
			for i, number := range numbers {
				if want := "GPU-" + string('a'+number[0]-'0'); names[i] != want {
					t.Errorf("number %s has the device %s, want %s", number, names[i], want)
				}
			}
			all = append(all, numbers...)
		}
		if slices.Sort(all); len(all) != 3 || len(slices.Compact(all)) != 3 {
			t.Errorf("the holders have the numbers %v", all)
		}
		s.expect(75, nil, run("2", "--no-wait")...)

		pid, err := strconv.Atoi(one[2])
		if err != nil {
			t.Fatal(err)
		}
		command, err := os.FindProcess(pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Kill(); err != nil {
			t.Fatal(err)
		}
		third := s.start(run("3")...) // all but that of the second
		if got := strings.Fields(third.line()); len(strings.Split(got[0], ",")) != 3 || strings.Contains(got[0], two[0]) {
			t.Errorf("the third has the numbers %s, while the second has %s", got[0], two[0])
		}
	})
}

// TestRun_SlotsUnderContention starts more commands than there are numbers. Each creates a
// directory for each of its numbers, which fails if another command has that number.
func TestRun_SlotsUnderContention(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s shell) {
		directory := t.TempDir()
		script := `cd "$0" && for n in $(echo $SEMA_SLOTS | tr , ' '); do mkdir $n || exit 1; done; sleep 0.05; rmdir $(echo $SEMA_SLOTS | tr , ' ')`
		var running sync.WaitGroup
		for i := range 12 {
			running.Go(func() {
				r := s.run("run", "gpu", "-n", "4", "--slots", strconv.Itoa(1+i%3), "--", "sh", "-c", script, directory)
				if r.code != 0 {
					t.Errorf("exit code %d\n%s", r.code, r.err)
				}
			})
		}
		running.Wait()
	})
}

// TestRun_SlotsThatCannotBe checks the errors of --slots and --devices.
func TestRun_SlotsThatCannotBe(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	s.env = append(s.env, gpuNames)
	for name, c := range map[string]struct {
		want  string
		flags []string
	}{
		"none":               {"--slots 0: want 1", []string{"--slots", "0"}},
		"more than capacity": {"--slots 5 is more than -n 4", []string{"-n", "4", "--slots", "5"}},
		"with a weight":      {"both --slots and --weight", []string{"--slots", "2", "-w", "2"}},
		"devices alone":      {"--devices cuda without --slots", []string{"--devices", "cuda"}},
		"unknown devices":    {"--devices tpu: want cuda", []string{"--slots", "1", "--devices", "tpu"}},
		"too few devices":    {"lists only 4", []string{"-n", "5", "--slots", "1", "--devices", "cuda"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := s
			s.t = t
			s.expect(64, []string{c.want}, slices.Concat([]string{"run", "x"}, c.flags, []string{"--", "true"})...)
		})
	}
	t.Run("a semaphore without numbers", func(t *testing.T) {
		t.Parallel()
		s := onRedis(t)
		s.must("run", "plain", "-n", "2", "--", "true")
		s.expect(64, []string{`the permits of "plain" have no numbers`, "hint: "}, "run", "plain", "--slots", "1", "--", "true")
	})
}
