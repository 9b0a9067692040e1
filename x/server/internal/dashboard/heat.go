package dashboard

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Waits are the waits of a semaphore that have ended, by time and by length.
type Waits struct {
	Classes []time.Duration // upper bounds of the lengths; one more class has longer ones
	Slot    time.Duration   // the interval of one element of Counts
	Counts  [][]int         // by slot, the last one contains At; and by class
	At      time.Time
}

// A heatMap shows how many waits took how long, and when. Each row is a class of lengths.
type heatMap struct {
	Span     time.Duration
	From, To int64     // times of the edges, in milliseconds since 1970
	Levels   []string  // paths of the cells, by intensity; the last one is the strongest
	Rows     []heatRow // the longest waits first
	Height   int       // of the coordinate space
	Ticks    []string  // labels of the time axis, at equal distances
	Cells    string    // "column.row.count;" of each cell, for the pointer
	Columns  int       // of the time axis
	Text     string    // for screen readers
}

// A heatRow is a class of lengths.
type heatRow struct {
	Label string
	Y     int // of its middle, in percent
}

// The space of a heat map is heatWidth wide, and each row is heatRowHeight high.
const (
	heatWidth     = 600
	heatRowHeight = 14
	// heatLevels is the number of intensities. They are logarithmic, because a few long waits must be
	// visible beside thousands of short ones.
	heatLevels = 5
	// heatColumns bounds the columns: slots are added up.
	heatColumns = 60
)

// newHeatMap returns the heat map of a time range that ends now, nil if nothing is known.
func newHeatMap(w Waits, span time.Duration) *heatMap {
	if len(w.Counts) == 0 {
		return nil
	}
	slots := min(len(w.Counts), int(span/w.Slot))
	merge := (slots + heatColumns - 1) / heatColumns
	columns := slots / merge
	counts := w.Counts[len(w.Counts)-columns*merge:]
	rows := len(w.Classes) + 1
	width := time.Duration(merge) * w.Slot
	end := w.At.Truncate(w.Slot).Add(w.Slot)
	m := &heatMap{Span: time.Duration(columns) * width, Height: rows * heatRowHeight, Levels: make([]string, heatLevels), Columns: columns}
	begin := end.Add(-m.Span)
	m.From, m.To = begin.UnixMilli(), end.UnixMilli()
	cells := make([][]int, columns)
	most, total, longest := 0, 0, -1
	for i := range cells {
		cells[i] = make([]int, rows)
		for _, slot := range counts[i*merge : (i+1)*merge] {
			for class, n := range slot {
				cells[i][class] += n
			}
		}
		for class, n := range cells[i] {
			most, total = max(most, n), total+n
			if n > 0 {
				longest = max(longest, class)
			}
		}
	}
	m.draw(cells, most)
	for row := range rows {
		m.Rows = append(m.Rows, heatRow{classLabel(w.Classes, rows-1-row), (2*row + 1) * 50 / rows})
	}
	m.Ticks = timeTicks(begin, m.Span)
	m.Text = fmt.Sprintf("Waits of the last %s: none", age(m.Span))
	if total > 0 {
		m.Text = fmt.Sprintf("Waits of the last %s: %s, the longest took %s", age(m.Span), count(int64(total)), classLabel(w.Classes, longest))
	}
	return m
}

// draw sets the paths of the cells, and the counts for the pointer.
func (m *heatMap) draw(cells [][]int, most int) {
	levels := make([]strings.Builder, heatLevels)
	var text strings.Builder
	for i, column := range cells {
		left, right := i*heatWidth/len(cells), (i+1)*heatWidth/len(cells)
		for class, n := range column {
			if n == 0 {
				continue
			}
			row := len(column) - 1 - class
			fmt.Fprintf(&levels[heatLevel(n, most)], "M%d %dh%dv%dH%dz", left, row*heatRowHeight, right-left-1, heatRowHeight-1, left)
			fmt.Fprintf(&text, "%d.%d.%s;", i, row, count(int64(n)))
		}
	}
	for i := range levels {
		m.Levels[i] = levels[i].String()
	}
	m.Cells = text.String()
}

// heatLevel returns the intensity of a count: the lowest for one wait, the highest for most, and
// logarithmic in between.
func heatLevel(n, most int) int {
	if n <= 1 {
		return 0
	}
	return int(math.Ceil((heatLevels - 1) * math.Log(float64(n)) / math.Log(float64(most))))
}

// classLabel describes a class of lengths by its bounds.
func classLabel(bounds []time.Duration, class int) string {
	switch class {
	case 0:
		return "< " + shortSpan(bounds[0])
	case len(bounds):
		return "≥ " + shortSpan(bounds[len(bounds)-1])
	}
	return shortSpan(bounds[class-1]) + " – " + shortSpan(bounds[class])
}

// shortSpan formats a bound, such as 500ms, 5s or 2m.
func shortSpan(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	return age(d)
}
