package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// metrics counts requests and acquires, by route and result. No label is the name of a
// semaphore: any client may create one.
type metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	acquires *prometheus.CounterVec
	releases prometheus.Counter
	limited  *prometheus.CounterVec
	panics   prometheus.Counter
	serve    http.Handler
}

func newMetrics(s *service) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sema_http_requests_total", Help: "Requests, by route and status."}, []string{"route", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sema_http_request_seconds", Help: "Duration of requests, including waits.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"route"}),
		acquires: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sema_acquires_total", Help: "Acquires over HTTP, RPC and by Go clients, by result."}, []string{"result"}),
		releases: prometheus.NewCounter(prometheus.CounterOpts{Name: "sema_releases_total", Help: "Leases released over HTTP, RPC and by Go clients."}),
		limited:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sema_limited_total", Help: "Requests rejected by a limit of this server, by limit."}, []string{"limit"}),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sema_panics_total", Help: "Requests that ended in a panic; the log has the stack."}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.took, m.acquires, m.releases, m.limited, m.panics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("sema_http_waiting", "Requests waiting for permits.", func() float64 { return float64(s.waiting.Load()) }),
		gauge("sema_http_streams", "Connections that hold a lease or watch.", func() float64 { return float64(s.streams.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sema_build_info", Help: "The version.", ConstLabels: prometheus.Labels{"version": s.options.Version},
		}, func() float64 { return 1 }),
	)
	m.serve = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return m
}

// acquired counts an acquire by its error.
func (m *metrics) acquired(err error) {
	result := "acquired"
	switch {
	case err == nil:
	case errors.Is(err, sema.ErrTimeout):
		result = "timeout"
	case errors.Is(err, sema.ErrFull), errors.Is(err, sema.ErrQueueFull), errors.Is(err, sema.ErrDraining), errors.Is(err, sema.ErrTooLarge):
		result = "rejected"
	case errors.Is(err, context.Canceled):
		result = "canceled"
	default:
		result = "error"
	}
	m.count(result)
}

func (m *metrics) count(result string) { m.acquires.WithLabelValues(result).Inc() }

// result counts the result of an acquire of a Go client.
func (m *metrics) result(kind protocol.ResultKind) {
	switch kind {
	case protocol.Granted:
		m.count("acquired")
	case protocol.Full, protocol.QueueFull, protocol.TooLarge, protocol.Draining:
		m.count("rejected")
	case protocol.TimedOut:
		m.count("timeout")
	case protocol.Revoked: // not an acquire
	default:
		m.count("error")
	}
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	if err := callerOf(r.Context()).allow(Read, ""); err != nil {
		return err
	}
	s.service.counted.serve.ServeHTTP(w, r)
	return nil
}
