package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// A redisBench measures Sema and its rivals on one Redis server.
type redisBench struct {
	storeBench
	server func() *redistest.Server
	rivals *redisRivals
}

// redisScenarios returns the scenarios that compare the Redis store with common
// alternatives.
func redisScenarios() []scenario {
	if !installed("redis-server", "redis-…") {
		return nil
	}
	server := once(func(s *storetest.Scope) *redistest.Server {
		server := redistest.StartNew(s)
		time.Sleep(16 * time.Second) // one TTL, during which a new server grants nothing
		return server
	})
	b := &redisBench{server: server, storeBench: storeBench{url: func() string { return server().URL() }}, rivals: newRedisRivals(server)}
	return []scenario{
		{
			name:    "redis-acquire",
			about:   "Redis: one caller acquires",
			impls:   []impl{{"sema/fleet", b.oneAcquire}, {"bare EVALSHA of one ZADD", b.bare}},
			targets: []target{{impl: "sema/fleet", rival: "bare EVALSHA of one ZADD", limit: 1.2}},
		},
		{
			name:    "redis-pairs",
			about:   "Redis: 512 goroutines acquire + release one semaphore",
			impls:   []impl{{"sema/fleet", b.pairs(512, 40)}, {"sorted set + Lua, go-redis", b.rivals.pairs(512, 40)}},
			targets: []target{{impl: "sema/fleet", rival: "sorted set + Lua, go-redis", limit: 0.25}},
		},
		{
			name:  "redis-queue",
			about: "Redis: 256 callers in four processes, 8 permits held for 5 ms each: 625 µs a permit is the ideal",
			impls: []impl{{"sema/fleet", b.queue}, {"sorted set + Lua, go-redis, retries after 50–200 ms", b.rivals.queue}},
			targets: []target{
				{impl: "sema/fleet", limit: 625 / 0.9, value: func(r row) float64 { return r.NsOp / 1e3 }, unit: "µs a permit"},
				{impl: "sema/fleet", limit: 1.5, value: func(r row) float64 { return r.Spread }, unit: "p99/p50 of waits"},
				{impl: "sema/fleet", limit: 1, value: func(r row) float64 { return r.Count }, unit: "messages a grant"},
			},
		},
		{
			name:  "redis-mutex",
			about: "Redis: one caller locks and unlocks, N = 1",
			impls: []impl{{"sema/fleet", b.mutex}, {"sema/fleet, release not awaited", b.mutexNotAwaited}, {"rueidislock", b.rivals.rueidislock}, {"redsync", b.rivals.redsync}},
			targets: []target{
				{impl: "sema/fleet", rival: "redsync", limit: 1},
				{impl: "sema/fleet", rival: "rueidislock", limit: 0.9},
			},
		},
		b.pooledScenario("redis", "Redis"),
	}
}

// bare measures the minimum cost of an atomic acquire.
func (b *redisBench) bare() sample {
	const times = 2000
	client := b.rivals.rueidis()
	script := rueidis.NewLuaScript("return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])")
	took := make([]time.Duration, 0, times)
	for i := range times {
		start := time.Now()
		must(script.Exec(context.Background(), client, []string{"bare"}, []string{strconv.Itoa(i), strconv.Itoa(i % 100)}).Error())
		took = append(took, time.Since(start))
	}
	return sampleOf(took)
}

func (b *redisBench) mutex() sample {
	const times = 2000
	s, done := b.semaphore(1)
	defer done()
	return measure(times, func() {
		for range times {
			must(fleet.Release(context.Background(), acquireOne(s)))
		}
	})
}

// mutexNotAwaited releases as most programs do. The release is sent with the next acquire.
func (b *redisBench) mutexNotAwaited() sample {
	const times = 2000
	s, done := b.semaphore(1)
	defer done()
	return measure(times, func() {
		for range times {
			acquireOne(s).Release()
		}
	})
}

// queue also counts the messages that the server published.
func (b *redisBench) queue() sample {
	s, done := b.semaphore(queuePermits)
	defer done()
	before := b.published()
	measured := runQueue("fleet", b.url(), s.Name())
	measured.count = float64(b.published()-before) / float64(measured.ops)
	return measured
}

// published returns the number of messages published so far.
func (b *redisBench) published() (n int64) {
	for line := range strings.Lines(b.server().Must("INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_publish:calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, _ = strconv.ParseInt(calls, 10, 64)
		}
	}
	return n
}
