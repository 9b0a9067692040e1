package prom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sema-go/sema/x/internal/measure"
)

// A recorder records the distributions of a series as histograms. They are created when
// they are first used.
type recorder struct {
	collector *Collector
	options   *options
	series    *measure.Series

	mu    sync.Mutex
	waits map[string]*histogram // by result; guarded by mu, and entries are never replaced
	acq   lazyHistogram         // of result acquired, which is looked up at each wait
	hold  lazyHistogram
}

// A histogram is one series of a distribution, which Write completes.
type histogram struct {
	prometheus.Histogram
	series *measure.Series // adds the acquires that were granted at once; nil: none
}

// A lazyHistogram is a histogram that is created when it is first used.
type lazyHistogram struct {
	once sync.Once
	mu   sync.Mutex
	h    *histogram
}

func newRecorder(c *Collector, o *options, s *measure.Series) *recorder {
	return &recorder{collector: c, options: o, series: s, waits: map[string]*histogram{}}
}

// Waited implements [measure.Recorder].
func (r *recorder) Waited(result string, seconds float64) { r.wait(result).Observe(seconds) }

// Held implements [measure.Recorder].
func (r *recorder) Held(seconds float64) {
	if r.series.Class == "" {
		r.hold.get(func() *histogram { return r.new(measure.Hold, false) }).Observe(seconds)
	}
}

// wait returns the histogram of waits with an result. Those of a class are not divided by
// result, and only granted ones count.
func (r *recorder) wait(result string) prometheus.Observer {
	switch {
	case result == measure.Acquired && r.series.Class != "":
		return r.acq.get(func() *histogram { return r.new(measure.ClassWait, true, r.series.Class) })
	case result == measure.Acquired:
		return r.acq.get(func() *histogram { return r.new(measure.AcquireWait, true, result) })
	case r.series.Class != "":
		return discard{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits[result] == nil {
		r.waits[result] = r.new(measure.AcquireWait, false, result)
	}
	return r.waits[result]
}

type discard struct{}

func (discard) Observe(float64) {}

func (l *lazyHistogram) get(create func() *histogram) *histogram {
	l.once.Do(func() {
		h := create()
		l.mu.Lock()
		l.h = h
		l.mu.Unlock()
	})
	return l.h
}

// existing returns the histogram, or nil if it was not used.
func (l *lazyHistogram) existing() *histogram {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.h
}

// The native histograms have a resolution of 10 %, and at most 100 buckets.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

func (r *recorder) new(d *measure.Desc, withGranted bool, labels ...string) *histogram {
	values := append([]string{r.series.Backend, r.series.Semaphore}, labels...)
	constant := prometheus.Labels{}
	for i, name := range d.LabelNames() {
		constant[name] = values[i]
	}
	o := prometheus.HistogramOpts{Name: d.Name, Help: d.Help, ConstLabels: constant, Buckets: r.options.buckets}
	if r.options.native {
		o.NativeHistogramBucketFactor, o.NativeHistogramMaxBucketNumber = nativeFactor, nativeBuckets
	}
	h := &histogram{Histogram: prometheus.NewHistogram(o)}
	if withGranted {
		h.series = r.series
	}
	return h
}

// collect sends the histograms that were used.
func (r *recorder) collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	for _, h := range r.waits {
		ch <- r.metric(h, measure.AcquireWait)
	}
	r.mu.Unlock()
	d := measure.AcquireWait
	if r.series.Class != "" {
		d = measure.ClassWait
	}
	r.wait(measure.Acquired) // without a wait so far, all acquires were granted at once
	ch <- r.metric(r.acq.existing(), d)
	if h := r.hold.existing(); h != nil {
		ch <- r.metric(h, measure.Hold)
	}
}

// A described is a histogram with the description of its collector, which has variable
// labels where the histogram has constant ones.
type described struct {
	*histogram
	desc *prometheus.Desc
}

func (r *recorder) metric(h *histogram, d *measure.Desc) prometheus.Metric {
	return described{h, r.collector.described[d]}
}

// Desc implements [prometheus.Metric].
func (d described) Desc() *prometheus.Desc { return d.desc }

// Write implements [prometheus.Metric]. It adds the acquires that were granted at once, with
// a wait of 0: observers receive only those that waited.
func (h *histogram) Write(m *dto.Metric) error {
	if err := h.Histogram.Write(m); err != nil || h.series == nil {
		return err
	}
	waited := m.Histogram.GetSampleCount()
	n, known := h.series.GrantedAtOnce(int64(waited))
	if !known || n == 0 {
		return nil
	}
	atOnce := uint64(n)
	*m.Histogram.SampleCount += atOnce
	for _, b := range m.Histogram.Bucket {
		*b.CumulativeCount += atOnce
	}
	if m.Histogram.ZeroCount != nil {
		*m.Histogram.ZeroCount += atOnce
	}
	return nil
}
