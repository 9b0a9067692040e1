package loadtest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A result is a measurement.
type result struct {
	Store       string
	Pairs       int64
	Errors      map[string]int64 // number of errors, by text
	Interrupted bool
	settings    settings
	elapsed     time.Duration
	took        histogram // latency of acquires
}

func (r *result) rate() float64 { return float64(r.Pairs) / r.elapsed.Seconds() }

func (r *result) print(w io.Writer, as string) error {
	if as == "json" {
		return printable.WriteJSON(w, r.document(), "  ")
	}
	_, err := io.WriteString(w, r.text())
	return err
}

// A document is the result as JSON. Durations are in microseconds.
type document struct {
	Store          string           `json:"store"`
	Mode           string           `json:"mode"`
	Callers        int              `json:"callers"`
	Capacity       int64            `json:"capacity"`
	HoldMicros     float64          `json:"hold_us"`
	Seconds        float64          `json:"seconds"`
	Pairs          int64            `json:"pairs"`
	PairsPerSecond float64          `json:"pairs_per_second"`
	Acquire        latency          `json:"acquire_us"`
	Histogram      []column         `json:"histogram"`
	Errors         map[string]int64 `json:"errors"`
	Interrupted    bool             `json:"interrupted"`
}

type latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

type column struct {
	From  float64 `json:"from_us"`
	To    float64 `json:"to_us"`
	Count int64   `json:"count"`
}

func (r *result) document() document {
	d := document{
		Store: r.Store, Mode: r.settings.mode, Callers: r.settings.callers, Capacity: r.settings.capacity, HoldMicros: micros(r.settings.hold),
		Seconds: r.elapsed.Seconds(), Pairs: r.Pairs, PairsPerSecond: r.rate(), Histogram: []column{}, Errors: r.Errors, Interrupted: r.Interrupted,
		Acquire: latency{micros(r.took.quantile(0.5)), micros(r.took.quantile(0.9)), micros(r.took.quantile(0.99)), micros(r.took.most)},
	}
	for _, b := range r.took.bands() {
		d.Histogram = append(d.Histogram, column{micros(b.From), micros(b.To), b.Count})
	}
	return d
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// text formats the result in 80 columns.
func (r *result) text() string {
	var b strings.Builder
	s := r.settings
	fmt.Fprintf(&b, "%s\n%s, %s, %s, held for %v\n", printable.Line(r.Store), figure.Count(int64(s.callers), "caller"), figure.Count(s.capacity, "permit"), s.mode, s.hold)
	if r.Interrupted {
		fmt.Fprintf(&b, "interrupted: these are the results until then\n")
	}
	fmt.Fprintf(&b, "\n%s pairs a second (%s in %v)\n", figure.Grouped(int64(r.rate()+0.5)), figure.Grouped(r.Pairs), r.elapsed.Round(10*time.Millisecond))
	if r.took.n > 0 {
		fmt.Fprintf(&b, "acquire: p50 %v, p90 %v, p99 %v, max %v\n\n", figure.Short(r.took.quantile(0.5)), figure.Short(r.took.quantile(0.9)), figure.Short(r.took.quantile(0.99)), figure.Short(r.took.most))
		r.columns(&b)
	}
	if int64(s.callers) > s.capacity {
		fmt.Fprintf(&b, "\n%s for %s: the time includes waiting for permits.\n", figure.Count(s.capacity, "permit"), figure.Count(int64(s.callers), "caller"))
	}
	for _, text := range slices.Sorted(maps.Keys(r.Errors)) {
		fmt.Fprintf(&b, "\nfailed %s: %s\n", figure.Count(r.Errors[text], "time"), printable.Line(text))
	}
	return b.String()
}

// columns writes a bar for each band. The longest bar is full.
func (r *result) columns(b *strings.Builder) {
	const width = 40
	bands, most := r.took.bands(), int64(1)
	for _, band := range bands {
		most = max(most, band.Count)
	}
	for _, band := range bands {
		filled, rest := figure.Bar(float64(band.Count)/float64(most), width)
		fmt.Fprintf(b, "%9v – %-9v %s%*s %5.1f %%\n", band.From, band.To, filled, rest, "", 100*float64(band.Count)/float64(r.took.n))
	}
}
