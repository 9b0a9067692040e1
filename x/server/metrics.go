package server

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sema-go/sema/x/server/internal/meter"
)

// metrics counts requests by route and result. Package meter has the figures of semaphores.
type metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	releases prometheus.Counter
	limited  *prometheus.CounterVec
	panics   prometheus.Counter
	process  *prometheus.Registry

	semaphores *meter.Collector
}

func newMetrics(s *service) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sema_http_requests_total", Help: "Requests, by route and status."}, []string{"route", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sema_http_request_seconds", Help: "Duration of requests, including waits.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"route"}),
		releases: prometheus.NewCounter(prometheus.CounterOpts{Name: "sema_releases_total", Help: "Leases released over HTTP, RPC and by Go clients."}),
		limited:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sema_limited_total", Help: "Requests rejected by a limit of this server, by limit."}, []string{"limit"}),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sema_panics_total", Help: "Requests that ended in a panic; the log has the stack."}),
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.requests, m.took, m.releases, m.limited, m.panics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("sema_http_waiting", "Requests waiting for permits.", func() float64 { return float64(s.waiting.Load()) }),
		gauge("sema_http_streams", "Connections that hold a lease or watch.", func() float64 { return float64(s.streams.Load()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sema_build_info", Help: "The version.", ConstLabels: prometheus.Labels{"version": s.options.Version},
		}, func() float64 { return 1 }),
	)
	registry.MustRegister(
		gauge("sema_semaphores_measured", "Semaphores with series of their own.", func() float64 { all, _ := s.meter.All(); return float64(len(all) - 1) }),
		gauge("sema_semaphores_listed", "1 while the gauges of semaphores are up to date; 0: the store cannot be listed, and they are absent.", func() float64 {
			if s.sampler.fresh(time.Now()) {
				return 1
			}
			return 0
		}),
		gauge("sema_semaphores_folded", "Semaphores of the store without series of their own.", func() float64 { return float64(s.sampler.folded.Load()) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "sema_series_replaced_total", Help: "Series of unused semaphores that were dropped for others."}, func() float64 {
			_, replaced := s.meter.All()
			return float64(replaced)
		}),
	)
	m.process = registry
	m.semaphores = meter.NewCollector(cmp.Or(s.options.Backend, "store"))
	return m
}

// metrics responds with the figures of the server, and of the semaphores that the caller may read.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) error {
	c := callerOf(r.Context())
	if err := c.allow(Read, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), scrapeWait)
	defer cancel()
	s.service.sampler.refresh(ctx, scrapeAge)
	semaphores := prometheus.NewRegistry()
	semaphores.MustRegister(s.service.counted.semaphores.Of(s.service.meter, c.prefix, s.service.sampler.fresh(time.Now())))
	all := prometheus.Gatherers{semaphores}
	if c.prefix == "" { // what all clients together do concerns no single tenant
		all = append(all, s.service.counted.process)
	}
	promhttp.HandlerFor(all, promhttp.HandlerOpts{EnableOpenMetrics: true}).ServeHTTP(w, r)
	return nil
}

const (
	// scrapeAge is the greatest age of capacities, permits in use and waiters in a scrape, while the
	// store can be listed quickly.
	scrapeAge = time.Second
	// scrapeWait bounds how long a scrape waits for the store: the other series must arrive during
	// an outage, too.
	scrapeWait = 2 * time.Second
)
