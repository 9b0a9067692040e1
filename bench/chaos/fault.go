//go:build unix

package main

import (
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

// A fault is something that goes wrong, and comes right again.
type fault struct {
	name  string
	begin func()
	end   func() // nil if begin was all
	lasts time.Duration
}

// netFaults are what a network can do.
func netFaults(p *enginetest.Proxy, ttl time.Duration) []fault {
	bad := func(name string, f enginetest.Fault, lasts time.Duration) fault {
		return fault{name, func() { p.SetFault(f) }, p.Heal, lasts}
	}
	return []fault{
		{"connections are cut", p.Cut, nil, 0},
		{"connections are cut and refused", func() { p.SetFault(enginetest.Fault{Refuse: true}); p.Cut() }, p.Heal, ttl / 2},
		{"connections are cut and refused for longer than a TTL", func() { p.SetFault(enginetest.Fault{Refuse: true}); p.Cut() }, p.Heal, 3 * ttl / 2},
		bad("all is late", enginetest.Fault{Latency: 100 * time.Millisecond}, ttl),
		bad("requests are lost", enginetest.Fault{LoseRequests: true}, ttl/2),
		bad("replies are lost", enginetest.Fault{LoseReplies: true}, ttl/2),
		bad("replies are lost for longer than a TTL", enginetest.Fault{LoseReplies: true}, 3*ttl/2),
		bad("replies are lost, and connections with them", enginetest.Fault{CutReplies: true}, ttl/2),
	}
}

// processFaults are what can become of a server.
func processFaults(what string, p *enginetest.Process, ttl time.Duration) []fault {
	start := func() { must(p.Start()) }
	return []fault{
		{what + " is killed", p.Kill, start, ttl / 6},
		{what + " is killed, and away for longer than a TTL", p.Kill, start, 3 * ttl / 2},
		{what + " is stopped in order", p.Stop, start, ttl / 6},
		{what + " is paused", p.Pause, p.Continue, ttl / 2},
		{what + " is paused for longer than a TTL", p.Pause, p.Continue, 3 * ttl / 2},
	}
}

// clockFaults are steps of a server's clock, there and back.
func clockFaults(c *enginetest.Clock, ttl time.Duration) []fault {
	right := func() { c.Set(0) }
	return []fault{
		{"the server's clock steps forward by an hour, and back", func() { c.Set(time.Hour) }, right, 2 * ttl},
		{"the server's clock steps back by an hour, and forward", func() { c.Set(-time.Hour) }, right, 2 * ttl},
	}
}

// crewFaults are what can become of clients.
func crewFaults(c *crew) []fault {
	ttl := c.what.TTL
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
		{"a client is killed", func() { c.kill(c.one()) }, func() { c.hire() }, 0},
		{"a client is paused and killed", func() { w := c.one(); w.pause(); c.kill(w) }, func() { c.hire() }, ttl},
	}
}

// massacre kills clients by the hundred: it is dear, and happens once.
func massacre(c *crew, n int) fault {
	return fault{"clients are killed by the hundred", func() {
		var doomed []*worker
		for range n {
			doomed = append(doomed, c.hire())
		}
		time.Sleep(c.what.TTL / 2) // so that some of them hold something
		for _, w := range doomed {
			c.kill(w)
		}
	}, nil, 0}
}
