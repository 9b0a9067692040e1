package main

import (
	"os"
	"strings"
	"testing"
)

func TestWriteInto_FindsTheMarksOfEverySuite(t *testing.T) {
	page, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range suites {
		copied := t.TempDir() + "/benchmarks.md"
		if err := os.WriteFile(copied, page, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (suite{Suite: name}).writeInto(copied); err != nil {
			t.Errorf("suite %s: %v", name, err)
		}
		if !strings.Contains(string(page), "`go -C bench run . "+name+"`") {
			t.Errorf("the page does not have the command of suite %s", name)
		}
	}
}

func TestInstalled_LeavesOutMissingProgramsAndTheirTargets(t *testing.T) {
	run := func() sample { return sample{} }
	sc := scenario{
		impls:   []impl{{"sema", run}, {name: "missing"}, {"rival", run}},
		targets: []target{{impl: "sema", rival: "missing", limit: 1}, {impl: "sema", rival: "rival", limit: 1}},
	}
	got := sc.installed()
	if len(got.impls) != 2 || got.impls[1].name != "rival" {
		t.Errorf("implementations: %d, want sema and rival", len(got.impls))
	}
	if len(got.targets) != 1 || got.targets[0].rival != "rival" {
		t.Errorf("targets: %+v, want the one beside rival", got.targets)
	}
}
