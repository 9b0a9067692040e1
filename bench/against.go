package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"
)

// against is the path of a build of this program at another commit; "" means
// none. A difference of a nanosecond shows only if both builds run in turns:
//
//	git worktree add /tmp/older COMMIT && go -C /tmp/older/bench build -o /tmp/older.bench .
//	go run . core --only counters --against /tmp/older.bench
var against string

const olderName = "older commit"

// older returns an implementation that runs a scenario at the other commit and
// returns the result for name.
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
			panic(fmt.Sprintf("%s: no result for %s in scenario %s", against, name, scenario))
		}
		const ops = 1_000_000
		return sample{ops: ops, elapsed: time.Duration(s.Rows[i].NsOp * ops)}
	}}}
}

// targetsAgainst returns the targets if there is another commit to compare
// with.
func targetsAgainst(targets ...target) []target {
	if against == "" {
		return nil
	}
	return targets
}
