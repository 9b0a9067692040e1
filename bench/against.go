package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// against is a build of this program at another commit, "" for none. A difference of
// a nanosecond shows only when both take turns:
//
//	git worktree add /tmp/older COMMIT && go -C /tmp/older/bench build -o /tmp/older.bench .
//	go run . core --only counters --against /tmp/older.bench
var against string

const olderName = "older commit"

// older returns what an implementation costs at the other commit, in one of its
// scenarios.
func older(name, scenario string) []impl {
	if against == "" {
		return nil
	}
	return []impl{{olderName, func() sample {
		cmd := exec.Command(against, "core", "--only", scenario, "--rounds", "1", "--json")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		must(err)
		var s suite
		must(json.Unmarshal(out, &s))
		i := slices.IndexFunc(s.Rows, func(r row) bool { return r.Scenario == scenario && r.Impl == name })
		if i < 0 {
			panic(fmt.Sprintf("%s has no %s in %s", against, name, scenario))
		}
		const ops = 1_000_000
		return sample{ops: ops, elapsed: time.Duration(s.Rows[i].NsOp * ops)}
	}}}
}

// barsAgainst returns bars that need the other commit.
func barsAgainst(bars ...bar) []bar {
	if against == "" {
		return nil
	}
	return bars
}
