package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema"
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
			name:    "redis-server-time",
			about:   "Redis: one caller acquires, time of the server by INFO commandstats",
			impls:   []impl{{"sema/fleet", b.acquireServerTime}, {"bare EVALSHA of one ZADD", b.bareServerTime}},
			targets: []target{{impl: "sema/fleet", limit: 10, value: microseconds, unit: "µs of the server an acquire"}},
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
				{impl: "sema/fleet", limit: 1.08 * 625, value: microseconds, unit: "µs a permit"},
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
				{impl: "sema/fleet, release not awaited", rival: "redsync", limit: 1},
				{impl: "sema/fleet, release not awaited", rival: "rueidislock", limit: 0.9},
			},
		},
		b.pooledScenario("redis", "Redis"),
	}
}

func microseconds(r row) float64 { return r.NsOp / 1e3 }

// acquireServerTime measures the calls of acquires alone. Their permits are released later.
func (b *redisBench) acquireServerTime() sample {
	const times = 500
	s, done := b.semaphore(2 * times)
	defer done()
	permits := make([]sema.Permit, 0, times)
	measured := b.serverTime("fcall", times, func() { permits = append(permits, acquireOne(s)) })
	for _, p := range permits {
		p.Release()
	}
	return measured
}

func (b *redisBench) bareServerTime() sample {
	const times = 500
	client, i := b.rivals.rueidis(), 0
	return b.serverTime("evalsha", times, func() { bareAcquire(client, i); i++ })
}

// serverTime measures the time that the server spends in a command which do sends once.
func (b *redisBench) serverTime(command string, times int, do func()) sample {
	before := b.commandStat(command, "usec")
	for range times {
		do()
	}
	return sample{ops: times, elapsed: time.Duration(b.commandStat(command, "usec")-before) * time.Microsecond}
}

// commandStat returns a counter of a command since the start of the server.
func (b *redisBench) commandStat(command, counter string) (n int64) {
	for line := range strings.Lines(b.server().Must("INFO", "commandstats")) {
		if stats, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
			_, rest, _ := strings.Cut(","+stats, ","+counter+"=")
			value, _, _ := strings.Cut(rest, ",")
			n, _ = strconv.ParseInt(value, 10, 64)
		}
	}
	return n
}

// bare measures the minimum cost of an atomic acquire.
func (b *redisBench) bare() sample {
	const times = 2000
	client := b.rivals.rueidis()
	took := make([]time.Duration, 0, times)
	for i := range times {
		start := time.Now()
		bareAcquire(client, i)
		took = append(took, time.Since(start))
	}
	return sampleOf(took)
}

var bareScript = rueidis.NewLuaScript("return redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])")

func bareAcquire(client rueidis.Client, i int) {
	must(bareScript.Exec(context.Background(), client, []string{"bare"}, []string{strconv.Itoa(i), strconv.Itoa(i % 100)}).Error())
}

func (b *redisBench) mutex() sample {
	const times = 2000
	s, done := b.semaphore(1)
	defer done()
	return measure(times, func() {
		for range times {
			must(fleet.Release(caller, acquireOne(s)))
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
func (b *redisBench) published() int64 { return b.commandStat("publish", "calls") }
