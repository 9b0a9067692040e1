//go:build unix

package main

import (
	"slices"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

func startRedis(s *storetest.Scope, ttl time.Duration) target {
	clock := storetest.NewClock(s)
	server := redistest.Start(clock.For(s), "--appendonly", "yes", "--appendfsync", "always")
	net := storetest.NewProxy(s, server.Address)
	return target{
		url: "redis://" + net.Address, direct: server.URL(),
		faults: slices.Concat(netFaults(net, ttl), processFaults("Redis", server.Process, ttl), clockFaults(clock, ttl)),
	}
}

func startForgetful(s *storetest.Scope, ttl time.Duration) target {
	server := redistest.Start(s)
	return target{
		url: server.URL(), direct: server.URL(),
		faults: append(processFaults("Redis", server.Process, ttl), lossFaults(server, ttl)...),
	}
}

func startSnapshots(s *storetest.Scope, ttl time.Duration) target {
	server := redistest.Start(s)
	return target{
		url: server.URL(), direct: server.URL(),
		faults: slices.Concat(processFaults("Redis", server.Process, ttl), lossFaults(server, ttl), snapshotFaults(server, ttl)),
	}
}

// lossFaults returns faults that lose all data, or the data written since the
// last snapshot.
func lossFaults(server *redistest.Server, ttl time.Duration) []fault {
	start := func() { must(server.Start()) }
	return []fault{
		{"all data are flushed", func() { server.Must("FLUSHALL") }, nil, 0},
		{"all data are flushed, and Redis is killed", func() { server.Must("FLUSHALL"); server.Kill() }, start, 0},
		{"Redis is killed, and again before it has granted anything", func() {
			server.Kill()
			start()
			time.Sleep(ttl / 3)
			server.Kill()
		}, start, 0},
		{"Redis is killed, and again when it has granted something", func() {
			server.Kill()
			start()
			time.Sleep(2 * ttl)
			server.Kill()
		}, start, 0},
	}
}

// snapshotFaults returns faults that restore earlier states of the data.
func snapshotFaults(server *redistest.Server, ttl time.Duration) []fault {
	start := func() { must(server.Start()) }
	save := func() { server.Must("SAVE") }
	return []fault{
		{"a snapshot is written", save, nil, 0}, // for later faults that kill Redis
		{"a snapshot is written just before Redis is killed", func() { save(); server.Kill() }, start, 0},
		{"a recent snapshot is restored", func() { save(); time.Sleep(ttl / 3); server.Kill() }, start, 0},
		{"a snapshot older than a TTL is restored twice", func() {
			save()
			time.Sleep(2 * ttl)
			server.Kill()
			start()
			time.Sleep(2 * ttl)
			server.Kill()
		}, start, 0},
		{"a snapshot is restored after all data were flushed", func() {
			save()
			time.Sleep(ttl / 2)
			server.Must("FLUSHALL")
			time.Sleep(2 * ttl)
			server.Kill()
		}, start, 0},
	}
}
