//go:build unix

package main

import (
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

// A fault is a failure and its end.
type fault struct {
	name     string
	begin    func()
	end      func() // nil: there is nothing to end
	duration time.Duration
}

// netFaults returns the faults of a network.
func netFaults(p *storetest.Proxy, ttl time.Duration) []fault {
	netFault := func(name string, f storetest.Fault, duration time.Duration) fault {
		return fault{name, func() { p.SetFault(f) }, p.Heal, duration}
	}
	return []fault{
		{"connections are cut", p.Cut, nil, 0},
		{"connections are cut and rejected", func() { p.SetFault(storetest.Fault{Reject: true}); p.Cut() }, p.Heal, ttl / 2},
		{"connections are cut and rejected for longer than a TTL", func() { p.SetFault(storetest.Fault{Reject: true}); p.Cut() }, p.Heal, 3 * ttl / 2},
		netFault("everything is delayed", storetest.Fault{Latency: 100 * time.Millisecond}, ttl),
		netFault("requests are lost", storetest.Fault{LoseRequests: true}, ttl/2),
		netFault("replies are lost", storetest.Fault{LoseReplies: true}, ttl/2),
		netFault("replies are lost for longer than a TTL", storetest.Fault{LoseReplies: true}, 3*ttl/2),
		netFault("replies are lost, and connections with them", storetest.Fault{CutReplies: true}, ttl/2),
	}
}

// processFaults returns the faults of a server process.
func processFaults(server string, p *storetest.Process, ttl time.Duration) []fault {
	start := func() { must(p.Start()) }
	return []fault{
		{server + " is killed", p.Kill, start, ttl / 6},
		{server + " is killed, and down for longer than a TTL", p.Kill, start, 3 * ttl / 2},
		{server + " is stopped in order", p.Stop, start, ttl / 6},
		{server + " is paused", p.Pause, p.Continue, ttl / 2},
		{server + " is paused for longer than a TTL", p.Pause, p.Continue, 3 * ttl / 2},
	}
}

// clockFaults returns steps of a server's clock, there and back.
func clockFaults(c *storetest.Clock, ttl time.Duration) []fault {
	reset := func() { c.Set(0) }
	return []fault{
		{"the server's clock steps forward by an hour, and back", func() { c.Set(time.Hour) }, reset, 2 * ttl},
		{"the server's clock steps back by an hour, and forward", func() { c.Set(-time.Hour) }, reset, 2 * ttl},
	}
}

// workerFaults returns the faults of clients.
func workerFaults(c *workerSet) []fault {
	ttl := c.base.TTL
	var paused []*worker
	pauseSome := func() {
		paused = append(paused[:0], c.one(), c.one())
		for _, w := range paused {
			w.pause()
		}
	}
	resume := func() {
		for _, w := range paused {
			w.resume()
		}
	}
	return []fault{
		{"clients are paused for longer than a TTL", pauseSome, resume, 3 * ttl / 2},
		{"clients are paused for a moment", pauseSome, resume, ttl / 4},
		{"a client is killed", func() { c.kill(c.one()) }, func() { c.start() }, 0},
		{"a client is paused and killed", func() { w := c.one(); w.pause(); c.kill(w) }, func() { c.start() }, ttl},
	}
}

// massKill returns a fault that starts n clients and kills them at once. It is
// expensive and happens once.
func massKill(c *workerSet, n int) fault {
	return fault{"clients are killed by the hundred", func() {
		var victims []*worker
		for range n {
			victims = append(victims, c.start())
		}
		time.Sleep(c.base.TTL / 2) // until some of them hold a permit
		for _, w := range victims {
			c.kill(w)
		}
	}, nil, 0}
}
