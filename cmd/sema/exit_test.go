package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema/cmd/sema/internal/exit"
)

// TestExitCodes_Documented compares the table of docs/cli.md and the help with the codes of the
// program.
func TestExitCodes_Documented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Exit codes\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([^|]*) \| ([^|]*) \| [^|]* \|$`).FindAllStringSubmatch(section, -1)
	if !found || len(rows) < 2 {
		t.Fatalf("docs/cli.md has no table of exit codes:\n%s", section)
	}
	var documented, declared []string
	for _, row := range rows[1:] { // without the header
		documented = append(documented, row[1]+" "+row[2])
	}
	help := onHost(t).must("--help")
	for _, m := range exit.Meanings {
		declared = append(declared, m.Name()+" "+m.Text)
		if line := m.Name() + "  " + m.Text + "\n"; !strings.Contains(help, " "+line) {
			t.Errorf("no %q in the help:\n%s", line, help)
		}
	}
	if !slices.Equal(documented, declared) {
		t.Errorf("documented are\n%s\ndeclared are\n%s", strings.Join(documented, "\n"), strings.Join(declared, "\n"))
	}
}

// TestExitCodes_DeclaredOnce checks that no other file of the program has an exit code as a number.
func TestExitCodes_DeclaredOnce(t *testing.T) {
	t.Parallel()
	numeric := regexp.MustCompile(`os\.Exit\([0-9]|exit\.Errorf\([0-9]|exit\.Error\{Code: [0-9]|[cC]ode(= | == | != |: )[1-9][0-9]*\b`)
	for _, file := range sources(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := numeric.FindAllString(string(text), -1); len(found) > 0 && !strings.HasPrefix(file, "internal/exit/") {
			t.Errorf("%s: %q; want a constant of package exit", file, found)
		}
	}
}

// TestStoreURLs_ParsedOnce checks that only package store parses the URL of a store.
func TestStoreURLs_ParsedOnce(t *testing.T) {
	t.Parallel()
	parsing := regexp.MustCompile(`url\.Parse|Prefix\([^)]*"(host|mem|sqlite|redis|postgres|etcd|semas?):|Getenv\("SEMA_STORE"\)`)
	for _, file := range sources(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := parsing.FindAllString(string(text), -1); len(found) > 0 && !strings.HasPrefix(file, "internal/store/") {
			t.Errorf("%s: %q; want package store", file, found)
		}
	}
}
