//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

// A parted is a Redis primary that can be cut off from its replicas, from the
// Sentinels and from half of the clients. The other half is on its side, and knows
// nothing but it.
type parted struct {
	sentinels
	first *redistest.Server // behind the wall
	wall  *enginetest.Proxy
}

func startParted(s *enginetest.Scope, ttl time.Duration) target {
	p := &parted{first: redistest.Start(s, sentinelSettings...)}
	p.wall = enginetest.NewProxy(s, p.first.Address)
	p.first.Must("CONFIG", "SET", "replica-announce-port", fmt.Sprint(p.wall.Port)) // when it is one
	p.servers, p.announced = []*redistest.Server{p.first}, map[*redistest.Server]int{p.first: p.wall.Port}
	for range 2 {
		p.servers = append(p.servers, redistest.Replica(s, p.first, append(sentinelSettings, "--replicaof", fmt.Sprint("127.0.0.1 ", p.wall.Port))...))
	}
	p.watchers = redistest.Sentinels(s, 3, p.wall.Port)
	url := p.url()
	return target{
		url: url, direct: url, inside: fmt.Sprintf("redis://%s?%s", p.first.Address, promotion),
		faults: []fault{
			{"the primary is cut off with its clients, and another one promoted", p.part, p.unite, 2 * ttl},
			{"the primary is cut off, and wakes up when another one is promoted", func() { p.first.Pause(); p.part(); p.first.Continue() }, p.unite, ttl},
		},
	}
}

// part lets nothing through the wall, and waits for what comes of it.
func (p *parted) part() {
	p.away = p.first
	p.wall.SetFault(enginetest.Fault{LoseRequests: true, LoseReplies: true})
	p.awaitPromotion()
}

// unite takes the wall away, and has the first be the primary again.
func (p *parted) unite() {
	p.wall.Heal()
	p.first.Await("role:slave", "INFO", "replication")
	p.follow()
	for end := time.Now().Add(time.Minute); p.primary() != p.first && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		_, _ = p.watchers[0].Do("SENTINEL", "FAILOVER", "main") // any of the replicas may be chosen
	}
	p.follow()
}
