//go:build unix

package main

import (
	"fmt"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// partitioned is a Redis primary that can be cut off from its replicas, from
// the Sentinels and from half of the clients. The other half of the clients
// stays connected to it and uses no other server.
type partitioned struct {
	sentinels
	first *redistest.Server // the primary that is cut off
	proxy *storetest.Proxy
}

func startPartitioned(s *storetest.Scope, ttl time.Duration) target {
	p := &partitioned{first: redistest.Start(s, sentinelSettings...)}
	p.proxy = storetest.NewProxy(s, p.first.Address)
	p.first.Must("CONFIG", "SET", "replica-announce-port", fmt.Sprint(p.proxy.Port)) // used when it is a replica
	p.servers, p.announced = []*redistest.Server{p.first}, map[*redistest.Server]int{p.first: p.proxy.Port}
	for range 2 {
		p.servers = append(p.servers, redistest.Replica(s, p.first, append(sentinelSettings, "--replicaof", fmt.Sprint("127.0.0.1 ", p.proxy.Port))...))
	}
	p.watchers = redistest.Sentinels(s, 3, p.proxy.Port)
	url := p.url()
	return target{
		url: url, direct: url, partitionedURL: fmt.Sprintf("redis://%s?%s", p.first.Address, promotion),
		faults: []fault{
			{"the primary is cut off with its clients, and another one promoted", p.cutOff, p.rejoin, 2 * ttl},
			{"the primary is cut off, and resumes when another one is promoted", func() { p.first.Pause(); p.cutOff(); p.first.Continue() }, p.rejoin, ttl},
		},
	}
}

// cutOff drops all traffic through the proxy and waits for the promotion of a
// replica.
func (p *partitioned) cutOff() {
	p.oldPrimary = p.first
	p.proxy.SetFault(storetest.Fault{LoseRequests: true, LoseReplies: true})
	p.awaitPromotion()
}

// rejoin ends the partition and makes the first server the primary again.
func (p *partitioned) rejoin() {
	p.proxy.Heal()
	p.first.Await("role:slave", "INFO", "replication")
	p.awaitReplication()
	for end := time.Now().Add(time.Minute); p.primary() != p.first && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		_, _ = p.watchers[0].Do("SENTINEL", "FAILOVER", "main") // the Sentinels may choose any replica
	}
	p.awaitReplication()
}
