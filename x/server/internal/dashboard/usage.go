package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/x/server/internal/history"
)

// Usage is remembered in columns of usageTick, as many as a chart has.
const (
	usageTick    = 5 * time.Second
	usageColumns = 180
	usageSpan    = usageColumns * usageTick
	// mostGroups bounds the groups of a column. The others are added up, without a name.
	mostGroups = 24
	// mostUsages bounds the semaphores whose usage is remembered: those that were viewed last.
	mostUsages = 32
)

// usages remembers the holders of the semaphores that are viewed.
type usages struct {
	mu  sync.Mutex
	all map[string]*usage
}

// A usage remembers the permits of each group of holders of one semaphore, in the last minutes. Only a viewed semaphore
// is read, so the columns from before the first view, and from gaps, contain only the leases that
// are held still: their grants are known. Such columns are partial.
type usage struct {
	viewed  time.Time
	newest  int64                     // number of the newest column: time / usageTick
	columns [usageColumns]usageColumn // at number % usageColumns
	tones   [len(groupings)]tones
	charts  []usageChart // of the newest column
}

// A usageColumn is immutable: equal columns share their maps.
type usageColumn struct {
	held    [len(groupings)]map[string]int64 // permits by group; "": the others
	partial bool
}

// update records the holders of a semaphore, and returns the bars and charts of its page.
// past returns the permits in use over time; it is called only if there are partial columns.
func (u *usages) update(at time.Time, s semaphore, past func() history.Curve) ([]holding, []usageChart) {
	u.mu.Lock()
	defer u.mu.Unlock()
	one := u.all[s.Name]
	if one == nil {
		u.makeSpaceLocked()
		one = &usage{}
		u.all[s.Name] = one
	}
	one.viewed = at
	grown := one.record(at, s)
	holdings := s.holdings(one)
	if grown {
		one.charts = one.newCharts(holdings, s.Effective, past)
	}
	return holdings, one.charts
}

// makeSpaceLocked forgets the usage that was viewed longest ago, if there are too many.
func (u *usages) makeSpaceLocked() {
	if u.all == nil {
		u.all = map[string]*usage{}
	}
	if len(u.all) < mostUsages {
		return
	}
	oldest := ""
	for name, one := range u.all {
		if oldest == "" || one.viewed.Before(u.all[oldest].viewed) {
			oldest = name
		}
	}
	delete(u.all, oldest)
}

// A grant is a lease that is held.
type grant struct {
	tick   int64 // number of the column in which it was granted
	groups [len(groupings)]string
	weight int64
}

// record adds the columns up to a time. It reports whether there are new ones.
func (u *usage) record(at time.Time, s semaphore) bool {
	tick := at.UnixNano() / int64(usageTick)
	if tick <= u.newest {
		return false // or the clock was set back
	}
	grants := s.grants(at)
	var held [len(groupings)]map[string]int64
	for i := range held {
		held[i] = map[string]int64{}
	}
	for n := max(u.newest+1, tick-usageColumns+1); n <= tick; n++ {
		copied := false
		for len(grants) > 0 && grants[0].tick <= n {
			for i, group := range grants[0].groups {
				if !copied {
					held[i] = maps.Clone(held[i])
				}
				held[i][group] += grants[0].weight
			}
			grants, copied = grants[1:], true
		}
		u.columns[n%usageColumns] = usageColumn{held: held, partial: n < tick}
	}
	u.newest = tick
	return true
}

// grants returns the leases by the time of their grant, on the local clock. Leases of groups beyond
// the largest ones have no group.
func (s semaphore) grants(at time.Time) []grant {
	sessions := s.sessions()
	all := make([]grant, len(s.Leases))
	var sums [len(groupings)]map[string]int64
	for i := range sums {
		sums[i] = map[string]int64{}
	}
	for i, l := range s.Leases {
		all[i] = grant{tick: min(at.UnixNano(), at.Add(-s.since(l.Since)).UnixNano()) / int64(usageTick), weight: l.Weight}
		for g, by := range groupings {
			all[i].groups[g] = by.of(sessions[l.Session].Client, l)
			sums[g][all[i].groups[g]] += l.Weight
		}
	}
	for g, sum := range sums {
		if len(sum) <= mostGroups {
			continue
		}
		names := slices.SortedFunc(maps.Keys(sum), func(a, b string) int { return cmp.Or(cmp.Compare(sum[b], sum[a]), cmp.Compare(a, b)) })
		large := map[string]bool{}
		for _, name := range names[:mostGroups] {
			large[name] = true
		}
		for i := range all {
			if !large[all[i].groups[g]] {
				all[i].groups[g] = ""
			}
		}
	}
	slices.SortStableFunc(all, func(a, b grant) int { return cmp.Compare(a.tick, b.tick) })
	return all
}

// column returns a column by its place in a chart.
func (u *usage) column(i int) *usageColumn {
	return &u.columns[(u.newest+1+int64(i))%usageColumns]
}

// addTo adds what groups have held in the last minutes.
func (u *usage) addTo(groups map[string]*segment, by int) {
	if u == nil {
		return
	}
	for i := range usageColumns {
		for name, n := range u.column(i).held[by] {
			if name == "" {
				continue
			}
			if groups[name] == nil {
				groups[name] = &segment{Name: name}
			}
			groups[name].recent += n
		}
	}
}

func (u *usage) tonesOf(by int) *tones {
	if u == nil {
		return &tones{}
	}
	return &u.tones[by]
}

// A usageChart is the permits in use over time, stacked by group.
type usageChart struct {
	By       string
	Bands    []usageBand // the lowest one first
	Ended    string      // path of the permits in use whose leases have ended before the first view
	Top      string      // label of the upper edge
	Ticks    []string    // labels of the time axis, at equal distances
	From, To int64       // times of the edges, in milliseconds since 1970
}

// A usageBand is the permits of one group over time.
type usageBand struct {
	Name   string
	Tone   int
	Path   string
	Values string // of each column, separated by commas, for the pointer
}

// newCharts returns the charts with the groups of the bars.
func (u *usage) newCharts(holdings []holding, effective int64, past func() history.Curve) (all []usageChart) {
	var totals [usageColumns]int64
	end := time.Unix(0, (u.newest+1)*int64(usageTick))
	begin := end.Add(-usageSpan)
	if u.column(usageColumns-2).partial || u.column(0).partial {
		for _, p := range past().Points {
			if i := int(p.At.Sub(begin) / usageTick); !p.At.Before(begin) && i < usageColumns {
				totals[i] = p.InUse
			}
		}
	}
	for _, h := range holdings {
		by := slices.IndexFunc(groupings[:], func(g grouping) bool { return g.By == h.By })
		c := usageChart{By: h.By, From: begin.UnixMilli(), To: end.UnixMilli(), Ticks: timeTicks(begin, usageSpan)}
		bands := u.bands(by, h.Segments)
		top := max(1, effective)
		for i := range usageColumns {
			sum := int64(0)
			for _, band := range bands {
				sum += band[i]
			}
			top = max(top, sum, totals[i])
		}
		c.Top = count(top)
		c.draw(u, h.Segments, bands, totals[:], top)
		all = append(all, c)
	}
	return all
}

// bands returns the permits of each segment in each column.
func (u *usage) bands(by int, segments []segment) [][usageColumns]int64 {
	place := map[string]int{}
	rest := -1
	for i, one := range segments {
		if one.Tone == restTone && i == mostSegments-1 {
			rest = i
		}
		place[one.Name] = i
	}
	bands := make([][usageColumns]int64, len(segments))
	for i := range usageColumns {
		for name, n := range u.column(i).held[by] {
			at, known := place[name]
			if !known {
				at = rest
			}
			if at >= 0 {
				bands[at][i] += n
			}
		}
	}
	return bands
}

// draw sets the paths. Equal columns are one rectangle.
func (c *usageChart) draw(u *usage, segments []segment, bands [][usageColumns]int64, totals []int64, top int64) {
	var below [usageColumns]int64
	rectangles := func(values func(i int) int64) string {
		var path strings.Builder
		for i := 0; i < usageColumns; {
			from, low, n := i, below[i], values(i)
			for i < usageColumns && below[i] == low && values(i) == n {
				i++
			}
			if n > 0 {
				y := func(v int64) float64 { return chartHeight * (1 - float64(v)/float64(top)) }
				fmt.Fprintf(&path, "M%.4g %.4gV%.4gH%.4gV%.4gz", columnX(from), y(low), y(low+n), columnX(i), y(low))
			}
		}
		return path.String()
	}
	for b, one := range segments {
		values := make([]string, usageColumns)
		for i, n := range bands[b] {
			values[i] = fmt.Sprint(n)
		}
		c.Bands = append(c.Bands, usageBand{one.Name, one.Tone, rectangles(func(i int) int64 { return bands[b][i] }), strings.Join(values, ",")})
		for i := range below {
			below[i] += bands[b][i]
		}
	}
	c.Ended = rectangles(func(i int) int64 {
		if !u.column(i).partial {
			return 0
		}
		return max(0, totals[i]-below[i])
	})
}

func columnX(column int) float64 { return chartWidth * float64(column) / usageColumns }

// Text describes the chart for screen readers.
func (c usageChart) Text() string {
	names := make([]string, len(c.Bands))
	for i, band := range c.Bands {
		names[i] = band.Name
	}
	return fmt.Sprintf("Permits in use by %s in the last %s: %s", c.By, age(usageSpan), strings.Join(names, ", "))
}
