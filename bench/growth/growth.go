// Package growth measures how the cost of an operation grows with what there is: waiters,
// semaphores, sessions, leases. It writes docs/growth.md and its charts. A curve should be
// flat: one that rises faster than its limit is marked.
package growth

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema/bench/plot"
	"github.com/sema-go/sema/internal/storetest"
)

// A curve is the cost of something at rising sizes, for several contenders.
type curve struct {
	name  string // of the chart, and for --only
	title string
	size  string // what the size counts
	unit  string
	limit float64 // largest allowed ratio of the costs at the largest and the smallest size; 0: none
	note  string  // explains a limit other than flat
	runs  []contender
}

// flat is the limit of a curve that should not rise. Tenfold sizes leave caches, and the
// machine is not quiet.
const flat = 3

// A contender measures the cost at a size.
type contender struct {
	name  string
	sizes []int
	at    func(size int) float64
	rival bool
}

// A result is what was measured of a curve.
type result struct {
	curve
	lines []plot.Series
}

// Main runs the program with the arguments that follow its name.
func Main(args []string) error {
	flags := flag.NewFlagSet("bench growth", flag.ExitOnError)
	only := flags.String("only", "", "run only curves whose name contains this, and replace only their sections")
	quick := flags.Bool("quick", false, "only the two smallest sizes, up to 100, once: to see that it runs; writes no file")
	onlyPrint := flags.Bool("print", false, "print the figures, write no file")
	doc := flags.String("doc", "../docs/growth.md", "the file into which the figures are written, between its marks")
	plots := flags.String("plots", "../docs/growth", "the directory of the charts")
	rounds := flags.Int("rounds", 3, "how often each size is measured; medians are reported")
	flags.Parse(args)
	if *rounds < 1 {
		return errors.New("--rounds must be at least 1")
	}
	if *quick {
		*rounds = 1
	}
	var results []result
	err := storetest.Run(func(s *storetest.Scope) {
		for _, c := range curves(s) {
			if strings.Contains(c.name, *only) {
				results = append(results, c.measure(*rounds, *quick, os.Stderr))
			}
		}
	})
	if err != nil {
		return err
	}
	text := markdown(results, filepath.Base(*plots))
	fmt.Print(text)
	if *quick || *onlyPrint {
		return nil
	}
	return write(results, text, *doc, *plots, *only == "")
}

// curves returns all curves.
func curves(s *storetest.Scope) []curve {
	return slices.Concat(processCurves(), coreCurves(), storeCurves(s), sessionCurves(s))
}

// measure measures each size for all contenders in turns.
func (c curve) measure(rounds int, quick bool, progress io.Writer) result {
	r := result{curve: c}
	var sizes []int
	for _, one := range c.runs {
		r.lines = append(r.lines, plot.Series{Name: one.name, Dashed: one.rival})
		sizes = append(sizes, one.sizes...)
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	if quick {
		sizes = slices.DeleteFunc(sizes, func(n int) bool { return n > 100 })
		sizes = sizes[:min(2, len(sizes))]
	}
	for _, size := range sizes {
		began := time.Now()
		values := make([][]float64, len(c.runs))
		for range rounds {
			for i, one := range c.runs {
				if slices.Contains(one.sizes, size) {
					runtime.GC()
					values[i] = append(values[i], one.at(size))
				}
			}
		}
		for i, v := range values {
			if len(v) > 0 {
				r.lines[i].Points = append(r.lines[i].Points, plot.Point{X: float64(size), Y: median(v)})
			}
		}
		fmt.Fprintf(progress, "%s: %d %s (%.1f s)\n", c.name, size, c.size, time.Since(began).Seconds())
	}
	return r
}

// rise returns the cost at the largest size over that at the smallest.
func rise(line plot.Series) float64 {
	if len(line.Points) < 2 || line.Points[0].Y <= 0 {
		return 1
	}
	return line.Points[len(line.Points)-1].Y / line.Points[0].Y
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// markdown returns a section for each curve: its chart and its figures.
func markdown(results []result, charts string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d cores, %s, %s.\n", runtime.NumCPU(), runtime.Version(), runtime.GOARCH)
	for _, r := range results {
		fmt.Fprintf(&b, "\n## %s\n\n![%s](%s/%s.svg)\n\n", r.title, r.title, charts, r.name)
		var sizes []float64
		for _, line := range r.lines {
			for _, p := range line.Points {
				sizes = append(sizes, p.X)
			}
		}
		slices.Sort(sizes)
		sizes = slices.Compact(sizes)
		fmt.Fprintf(&b, "| %s |", r.size)
		for _, size := range sizes {
			fmt.Fprintf(&b, " %s |", plot.Count(size))
		}
		fmt.Fprintf(&b, " rise |\n|---|%s--:|\n", strings.Repeat("--:|", len(sizes)))
		for _, line := range r.lines {
			fmt.Fprintf(&b, "| %s, %s |", line.Name, r.unit)
			for _, size := range sizes {
				i := slices.IndexFunc(line.Points, func(p plot.Point) bool { return p.X == size })
				if i < 0 {
					b.WriteString(" |")
					continue
				}
				fmt.Fprintf(&b, " %s |", figure(line.Points[i].Y))
			}
			mark := ""
			if r.limit > 0 && !line.Dashed && rise(line) > r.limit {
				mark = fmt.Sprintf(" **above %g**", r.limit)
			}
			fmt.Fprintf(&b, " %.1f%s |\n", rise(line), mark)
		}
		if r.note != "" {
			fmt.Fprintf(&b, "\n%s\n", r.note)
		}
	}
	return b.String()
}

// figure returns a number with three digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return plot.Count(v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

const beginMark, endMark = "<!-- growth -->\n", "<!-- end -->"

// write writes the figures between the marks of the document, and the charts. Unless all curves
// were measured, the sections of the others stay.
func write(results []result, text, doc, plots string, all bool) error {
	old, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), beginMark)
	present, after, closed := strings.Cut(rest, endMark)
	if !found || !closed {
		return fmt.Errorf("%s: no marks %q … %q", doc, strings.TrimSpace(beginMark), endMark)
	}
	if !all {
		text = replaceSections(present, text)
	}
	if err := os.WriteFile(doc, []byte(before+beginMark+text+endMark+after), 0o644); err != nil {
		return err
	}
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	for _, r := range results {
		chart := plot.Chart{File: r.name + ".svg", Title: r.title, XLabel: r.size, YLabel: r.unit, XLog: true, YLog: true, Series: r.lines}
		if err := os.WriteFile(filepath.Join(plots, cmp.Or(chart.File)), []byte(chart.SVG()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// replaceSections returns the present text with those sections of text that have the same
// titles. A section with a new title is added at the end.
func replaceSections(present, text string) string {
	sections := strings.Split(present, sectionMark)
	for _, section := range strings.Split(text, sectionMark)[1:] {
		title, _, _ := strings.Cut(section, "\n")
		i := slices.IndexFunc(sections, func(old string) bool { return strings.HasPrefix(old, title+"\n") })
		if i < 0 {
			sections = append(sections, section)
		} else {
			sections[i] = section
		}
	}
	return strings.Join(sections, sectionMark)
}

const sectionMark = "\n## "

// tenfold returns 10, 100, … up to most.
func tenfold(from, most int) (sizes []int) {
	for n := from; n <= most; n *= 10 {
		sizes = append(sizes, n)
	}
	return sizes
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
