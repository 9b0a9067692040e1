package growth

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/bench/plot"
	"github.com/sema-go/sema/internal/storetest"
)

// TestCurves_Measure runs every curve at its small sizes, with real stores.
func TestCurves_Measure(t *testing.T) {
	err := storetest.Run(func(s *storetest.Scope) {
		for _, c := range curves(s) {
			for _, line := range c.measure(1, true, io.Discard).lines {
				for _, p := range line.Points {
					if p.Y <= 0 && !strings.HasSuffix(c.name, "memory") {
						t.Errorf("%s, %s at %g: %g %s", c.name, line.Name, p.X, p.Y, c.unit)
					}
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestModel_LineIsTheLimit(t *testing.T) {
	h := hardware{operation: 4, between: 1, transfer: 60}
	one := func(int, int, int) []access { return []access{{0, 1}} }
	apart := func(_, core, _ int) []access { return []access{{core, 1}} }
	if shared := h.cost(8, one); shared < 8*h.transfer/2 {
		t.Errorf("8 cores on one line: %g ns an operation, less than the line takes to the 8 cores", shared)
	}
	if own := h.cost(8, apart); own > 6 {
		t.Errorf("8 cores on a line each: %g ns an operation", own)
	}
	if one := h.cost(1, one); one < 5 || one > 6 {
		t.Errorf("one core: %g ns an operation", one)
	}
}

func TestMarkdown_MarksWhatRises(t *testing.T) {
	line := func(name string, dashed bool, last float64) plot.Series {
		return plot.Series{Name: name, Dashed: dashed, Points: []plot.Point{{X: 10, Y: 2}, {X: 100, Y: last}}}
	}
	r := result{curve: curve{name: "c", title: "T", size: "waiters", unit: "ns", limit: 3}, lines: []plot.Series{
		line("flat", false, 4), line("steep", false, 40), line("rival", true, 400),
	}}
	dir := t.TempDir()
	doc := filepath.Join(dir, "g.md")
	if err := os.WriteFile(doc, []byte("before\n"+beginMark+"old\n"+endMark+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write([]result{r}, markdown([]result{r}, "p"), doc, filepath.Join(dir, "p"), true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"before\n", "after\n", "| flat, ns | 2.00 | 4.00 | 2.0 |", "| steep, ns | 2.00 | 40.0 | 20.0 **above 3** |", "| rival, ns | 2.00 | 400 | 200.0 |", "p/c.svg"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "p", "c.svg")); err != nil {
		t.Error(err)
	}
}

func TestReplaceSections_KeepsTheOthers(t *testing.T) {
	got := replaceSections("head\n\n## A\n1\n\n## AB\n2\n\n## C\n3\n", "new head\n\n## AB\n4\n\n## D\n5\n")
	if want := "head\n\n## A\n1\n\n## AB\n4\n\n## C\n3\n\n## D\n5\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
