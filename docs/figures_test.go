package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	// A measured figure has a unit, or digits after a point.
	figure    = regexp.MustCompile(`(\d[\d,]*(?:\.\d+)?) (ns|µs|ms|MB)\b|\b(\d+\.\d+)\b`)
	suiteMark = regexp.MustCompile(`(?s)<!-- bench:(\w+) -->\n(.*?)<!-- end -->`)
	suiteRun  = regexp.MustCompile(`go -C bench run \. (\w+)`)
)

// TestFigures_AreInTheTables checks that the measured figures of README and of the pages
// below are in the tables of docs/benchmarks.md that `make readme` writes, so
// that no page keeps a figure that a later run has replaced. A row that ends in † is not
// in a table yet.
func TestFigures_AreInTheTables(t *testing.T) {
	t.Parallel()
	tables, all := measured(t)

	for _, s := range []struct {
		file, heading string
		lines         string // what the lines with figures contain: others have times that are not measured
		least         int
	}{
		{"../README.md", "## Figures", "", 8},
		{"choosing.md", "## Which store and mode", "| an acquire costs |", 1},
		{"choosing.md", "## Fair or unfair", "| ", 8},
		{"concepts.md", "## Three scopes", "| [cost](benchmarks.md) of a pair |", 3},
		{"learn/fairness.md", "## What order costs", "| ", 6},
		{"learn/fairness.md", "## What order saves", "| ", 15},
		{"learn/implementations.md", "## What it costs", "it convoys as well", 1},
		{"learn/questions.md", "## Order", "in the extreme case", 2},
		{"learn/questions.md", "## Processes and machines", "`go -C bench run . host`", 1},
		{"operations.md", "## Sizes", "[benchmarks](benchmarks.md)", 2},
	} {
		names := 0
		for line := range strings.Lines(section(t, s.file, s.heading)) {
			if !strings.Contains(line, s.lines) {
				continue
			}
			for _, name := range figures(line) {
				names++
				if !all[name] {
					t.Errorf("%s: %s: no table of docs/benchmarks.md has %s: take the figure from the table", s.file, s.heading, name)
				}
			}
		}
		if names < s.least {
			t.Errorf("%s: %s: %d figures", s.file, s.heading, names)
		}
	}

	suite, checked := "", 0
	for line := range strings.Lines(section(t, "comparison.md", "## Figures")) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 4 || cells[0] == "scenario" {
			continue
		}
		if run := suiteRun.FindStringSubmatch(cells[3]); run != nil {
			suite = run[1]
		}
		marked, missing := strings.HasSuffix(cells[3], "†"), 0
		for _, name := range figures(cells[1] + "; " + cells[2]) {
			checked++
			if tables[suite][name] {
				continue
			}
			missing++
			if !marked {
				t.Errorf("comparison.md: %s: the table of %s has no %s: take the figure from it", cells[0], suite, name)
			}
		}
		if marked && missing == 0 {
			t.Errorf("comparison.md: %s: the table of %s has all figures: remove the †", cells[0], suite)
		}
	}
	if checked < 50 {
		t.Errorf("comparison.md has %d figures", checked)
	}
}

// measured returns the figures in the tables of each suite, and those of all tables.
func measured(t *testing.T) (tables map[string]map[string]bool, all map[string]bool) {
	t.Helper()
	text, err := os.ReadFile("benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	tables, all = make(map[string]map[string]bool), make(map[string]bool)
	for _, m := range suiteMark.FindAllStringSubmatch(string(text), -1) {
		tables[m[1]] = make(map[string]bool)
		for line := range strings.Lines(m[2]) {
			if !strings.HasPrefix(line, "| ") {
				continue
			}
			for _, f := range figure.FindAllStringSubmatch(line, -1) {
				for _, unit := range []string{"", " ns", " µs", " ms"} { // pages write a unit once in a list
					if f[3] != "" {
						tables[m[1]][f[3]+unit], all[f[3]+unit] = true, true
					}
				}
				if f[1] != "" {
					tables[m[1]][f[1]+" "+f[2]], all[f[1]+" "+f[2]] = true, true
				}
			}
		}
	}
	return tables, all
}

// figures returns the measured figures of a text: those with a unit, and, with the unit of the
// figure before them in an item or none, those with digits after a point.
func figures(text string) (names []string) {
	unit, item := "", 0
	for _, at := range figure.FindAllStringSubmatchIndex(text, -1) {
		if i := strings.LastIndex(text[:at[0]], "\n- "); i > item {
			unit, item = "", i
		}
		m := figure.FindStringSubmatch(text[at[0]:at[1]])
		if m[1] != "" {
			unit = m[2]
			names = append(names, m[1]+" "+unit)
		} else {
			names = append(names, strings.TrimSpace(m[3]+" "+unit))
		}
	}
	return names
}

// section returns the text of a page from a heading to the next one.
func section(t *testing.T, file, heading string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), heading+"\n")
	if !found {
		t.Fatalf("%s has no %q", file, heading)
	}
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}
