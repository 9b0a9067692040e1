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
