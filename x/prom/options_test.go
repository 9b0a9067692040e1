package prom_test

import (
	"slices"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/x/prom"
)

// TestNew_Buckets checks which buckets the distributions have.
func TestNew_Buckets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		opts    []prom.Option
		bounds  []float64
		natives bool
	}{
		{"own bounds", []prom.Option{prom.Buckets(.001, 1)}, []float64{.001, 1}, true},
		{"native ones only", []prom.Option{prom.Buckets()}, nil, true},
		{"classic ones only", []prom.Option{prom.Buckets(.5), prom.ClassicOnly()}, []float64{.5}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			metrics := prom.New(test.opts...)
			s := sema.New(1, sema.Name("db"), sema.Observe(metrics))
			metrics.Add("db", s)
			acquire(t, s, 1).Release()
			m := gather(t, metrics)[`sema_acquire_wait_seconds{backend="process",outcome="acquired",semaphore="db"}`]
			if m == nil || m.Histogram.GetSampleCount() != 1 {
				t.Fatalf("histogram %v, want one acquire", m)
			}
			var bounds []float64
			for _, b := range m.Histogram.Bucket {
				bounds = append(bounds, b.GetUpperBound())
			}
			if !slices.Equal(bounds, test.bounds) {
				t.Errorf("bounds %v, want %v", bounds, test.bounds)
			}
			if natives := m.Histogram.Schema != nil; natives != test.natives {
				t.Errorf("native buckets: %t, want %t", natives, test.natives)
			}
		})
	}
}

// TestNew_PanicsForInvalidOptions checks that each mistake is found at the start of the program.
func TestNew_PanicsForInvalidOptions(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]func(){
		"bounds that descend":  func() { prom.Buckets(2, 1) },
		"a bound twice":        func() { prom.Buckets(1, 1) },
		"no permit is sampled": func() { prom.HoldEvery(0) },
		"negative names":       func() { prom.New(prom.MaxNames(-1)) },
		"negative classes":     func() { prom.New(prom.MaxClasses(-1)) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			opt()
		})
	}
}
