package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMemory_StaysUnderItsBudget: what the jobs use at once is never more than the budget.
// The heap, with its garbage, and what the kernel has measured are near the memory limit of
// the program. All jobs together need several times as much.
func TestMemory_StaysUnderItsBudget(t *testing.T) {
	t.Parallel()
	const budget, limit = 64, 128 // MiB
	p := run(t, 0, build(t, "memory", "-race=false"), "-budget", fmt.Sprint(budget), "-jobs", "100")
	all := p.numbers(t, `100 jobs that need (\d+) MiB together`)[0]
	inUse := p.numbers(t, `in use at once: at most (\d+) of 64 MiB`)[0]
	heap := p.numbers(t, `heap, with garbage: at most (\d+) MiB, memory limit 128 MiB`)[0]
	if inUse > budget || inUse == 0 {
		t.Errorf("%d MiB in use at once, want at most %d", inUse, budget)
	}
	// The limit is a soft one: the collector may be late by as much as the jobs use.
	if heap > limit+budget || heap == 0 {
		t.Errorf("heap of %d MiB, with a memory limit of %d", heap, limit)
	}
	if all < 4*limit {
		t.Errorf("all jobs need %d MiB: too little for this test", all)
	}
	if resident, ok := maxResident(p.state); ok && resident>>20 > limit+2*budget {
		t.Errorf("%d MiB resident, want at most %d", resident>>20, limit+2*budget)
	}
}

func TestGPU_KeepsMemoryAndCompute(t *testing.T) {
	t.Parallel()
	p := run(t, 0, build(t, "gpu"))
	used := p.numbers(t, `24 jobs done, in use at once: at most (\d+) of 24 GiB, (\d+) of 100 %`)
	if used[0] != 24 || used[1] != 100 { // a job needs all of it
		t.Errorf("%d GiB and %d %% in use at once", used[0], used[1])
	}
	if started := strings.Count(p.out, " GiB "); started != 24 {
		t.Errorf("%d jobs started, want 24:\n%s", started, p.out)
	}
}

// TestWalk_KeepsItsDescriptorBudget runs the program with a limit of the kernel that is a
// little above its budget, and with so many threads that it would exceed that.
func TestWalk_KeepsItsDescriptorBudget(t *testing.T) {
	needUnix(t)
	t.Parallel()
	root := t.TempDir()
	write := func(dir string, files, size int) {
		t.Helper()
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for f := range files {
			path := filepath.Join(dir, fmt.Sprint(f))
			if err := os.WriteFile(path, []byte("first line\nsecond line\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, int64(size)); err != nil { // sparse: it takes time to read
				t.Fatal(err)
			}
		}
	}
	// Deeper than the budget: a walk that kept its directories open would stop.
	deep := root
	for range 15 {
		deep = filepath.Join(deep, "d")
		write(deep, 2, 100)
	}
	write(filepath.Join(root, "wide"), 200, 1<<20)
	if err := os.Symlink(root, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	const budget = 8
	p := run(t, 0, "sh", "-c", `ulimit -n 24 && GOMAXPROCS=64 exec "$@"`, "sh", build(t, "walk"), "-descriptors", fmt.Sprint(budget), root)
	got := p.numbers(t, `(\d+) directories, (\d+) files, (\d+) lines, 0 failed; at most (\d+) of 8 descriptors open`)
	if want := []int{1 + 15 + 1, 230, 2 * 230}; got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("%v directories, files and lines, want %v", got[:3], want)
	}
	if got[3] > budget {
		t.Errorf("%d descriptors open, want at most %d", got[3], budget)
	}
	if p := run(t, 1, build(t, "walk"), filepath.Join(root, "missing")); !strings.Contains(p.err, "missing") {
		t.Errorf("a directory that does not exist: %q", p.err)
	}
}

// TestPipeline_PausesAndResumes: while writing is paused, the pipeline holds what its
// buffers and stages have room for, and a batch. Then all messages are written, in order.
func TestPipeline_PausesAndResumes(t *testing.T) {
	t.Parallel()
	p := run(t, 0, build(t, "pipeline"))
	const room, batch = 16 + 16 + 2, 10 // two buffers, and one message in each of two stages
	paused := p.numbers(t, `writing paused: (\d+) messages in the pipeline, buffers of 16 and 16 full`)[0]
	resumed := p.numbers(t, `writing resumed: 500 messages written in order, at most (\d+) in the pipeline`)[0]
	if paused < room || resumed < paused || resumed > room+batch {
		t.Errorf("%d messages in the pipeline while paused, and at most %d; want %d to %d", paused, resumed, room, room+batch)
	}
	if pauses := p.numbers(t, `subscription paused (\d+) times`)[0]; pauses == 0 {
		t.Error("the subscription was never paused")
	}
	run(t, 2, build(t, "pipeline"), "-messages", "10")
}

// TestBackground_YieldsToRequests: no chunk of the batch starts while a request waits, and
// the batch is completed all the same.
func TestBackground_YieldsToRequests(t *testing.T) {
	t.Parallel()
	p := run(t, 0, build(t, "background"))
	p.numbers(t, `20 requests and 80 chunks done`)
	p.numbers(t, `0 chunks started while a request waited`)
	if most := p.numbers(t, `at most (\d+) of 4 workers used by the batch`)[0]; most > 3 {
		t.Errorf("the batch used %d workers, want one left", most)
	}
}
