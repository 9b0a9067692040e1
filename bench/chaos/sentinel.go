//go:build unix

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// sentinels are Redis servers of which Sentinels make one the primary. Their
// settings prevent a failover from granting a permit twice: see the package
// documentation of redisstore.
type sentinels struct {
	servers    []*redistest.Server
	watchers   []*redistest.Server
	announced  map[*redistest.Server]int // ports by which the Sentinels know servers, if different from their own
	oldPrimary *redistest.Server         // the former primary
}

// maxLag is min-replicas-max-lag, in seconds.
const maxLag = 1

var (
	promotion        = fmt.Sprintf("promotion=%ds", maxLag+2)
	sentinelSettings = []string{
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1", "--appendonly", "yes",
		"--min-replicas-to-write", "1", "--min-replicas-max-lag", fmt.Sprint(maxLag),
	}
)

func startSentinel(s *storetest.Scope, ttl time.Duration) target {
	primary := redistest.Start(s, sentinelSettings...)
	f := &sentinels{servers: []*redistest.Server{primary, redistest.Replica(s, primary, sentinelSettings...), redistest.Replica(s, primary, sentinelSettings...)}}
	f.watchers = redistest.Sentinels(s, 3, primary.Port)
	url := f.url()
	return target{
		url: url, direct: url,
		faults: []fault{
			{"the primary is killed, and another one promoted", func() { f.rememberPrimary().Kill(); f.awaitPromotion() }, f.restartOldPrimary, ttl},
			{"the primary is paused until another one is promoted", func() { f.rememberPrimary().Pause(); f.awaitPromotion() }, func() { f.oldPrimary.Continue(); f.awaitReplication() }, ttl},
			{"the replicas lag, and one is promoted", f.promoteLagging, f.restartOldPrimary, ttl},
			{"a planned failover", func() { f.rememberPrimary(); f.watchers[0].Must("SENTINEL", "FAILOVER", "main"); f.awaitPromotion() }, nil, 0},
		},
	}
}

// url returns the URL for clients that ask the Sentinels.
func (f *sentinels) url() string {
	var addresses []string
	for _, w := range f.watchers {
		addresses = append(addresses, w.Address)
	}
	return fmt.Sprintf("redis://%s?sentinel=main&addrs=%s&%s", addresses[0], strings.Join(addresses[1:], ","), promotion)
}

// primary returns the server that the first Sentinel considers the primary.
func (f *sentinels) primary() *redistest.Server {
	reply := f.watchers[0].Must("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
	for _, s := range f.servers {
		if strings.Contains(reply, fmt.Sprint(cmp.Or(f.announced[s], s.Port))) {
			return s
		}
	}
	panic("Sentinel reports an unknown primary: " + reply)
}

// rememberPrimary stores the current primary in oldPrimary and returns it.
func (f *sentinels) rememberPrimary() *redistest.Server {
	f.oldPrimary = f.primary()
	return f.oldPrimary
}

// awaitPromotion waits up to 20 s until there is another primary. There may be
// none, because the Sentinels may find the old primary reachable after all.
func (f *sentinels) awaitPromotion() {
	for end := time.Now().Add(20 * time.Second); f.primary() == f.oldPrimary && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
}

// promoteLagging pauses the replicas while the primary keeps acknowledging
// writes, and then kills the primary.
func (f *sentinels) promoteLagging() {
	f.rememberPrimary()
	for _, s := range f.servers {
		if s != f.oldPrimary {
			s.Pause()
		}
	}
	time.Sleep(maxLag * time.Second / 2)
	f.oldPrimary.Kill()
	for _, s := range f.servers {
		if s != f.oldPrimary {
			s.Continue()
		}
	}
	f.awaitPromotion()
}

// restartOldPrimary restarts the former primary as a replica.
func (f *sentinels) restartOldPrimary() {
	must(f.oldPrimary.Start())
	f.awaitReplication()
}

// awaitReplication waits until all other servers replicate from the primary.
func (f *sentinels) awaitReplication() {
	for _, s := range f.servers {
		if s != f.primary() {
			s.Await("master_link_status:up", "INFO", "replication")
		}
	}
}
