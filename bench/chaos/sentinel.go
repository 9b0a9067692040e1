//go:build unix

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

// sentinels are some Redis servers, of which Sentinels make one the primary. They
// are set so that a failover gives nothing twice: see the package documentation
// of redisstore.
type sentinels struct {
	servers   []*redistest.Server
	watchers  []*redistest.Server
	announced map[*redistest.Server]int // by which ports Sentinels know servers, if not by their own
	away      *redistest.Server         // the primary that was
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

func startSentinel(s *enginetest.Scope, ttl time.Duration) target {
	primary := redistest.Start(s, sentinelSettings...)
	f := &sentinels{servers: []*redistest.Server{primary, redistest.Replica(s, primary, sentinelSettings...), redistest.Replica(s, primary, sentinelSettings...)}}
	f.watchers = redistest.Sentinels(s, 3, primary.Port)
	url := f.url()
	return target{
		url: url, direct: url,
		faults: []fault{
			{"the primary is killed, and another one promoted", func() { f.take().Kill(); f.awaitPromotion() }, f.bringBack, ttl},
			{"the primary is paused until another one is promoted", func() { f.take().Pause(); f.awaitPromotion() }, func() { f.away.Continue(); f.follow() }, ttl},
			{"the replicas lag, and one is promoted", f.promoteLagging, f.bringBack, ttl},
			{"a failover in order", func() { f.take(); f.watchers[0].Must("SENTINEL", "FAILOVER", "main"); f.awaitPromotion() }, nil, 0},
		},
	}
}

// url is for those who ask the Sentinels.
func (f *sentinels) url() string {
	var addresses []string
	for _, w := range f.watchers {
		addresses = append(addresses, w.Address)
	}
	return fmt.Sprintf("redis://%s?sentinel=main&addrs=%s&%s", addresses[0], strings.Join(addresses[1:], ","), promotion)
}

// primary is the server that a Sentinel believes in.
func (f *sentinels) primary() *redistest.Server {
	answer := f.watchers[0].Must("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")
	for _, s := range f.servers {
		if strings.Contains(answer, fmt.Sprint(cmp.Or(f.announced[s], s.Port))) {
			return s
		}
	}
	panic("Sentinel knows another primary: " + answer)
}

// take is the primary, which is about to be one no more.
func (f *sentinels) take() *redistest.Server {
	f.away = f.primary()
	return f.away
}

// awaitPromotion waits until there is another primary. It gives up after a while:
// the Sentinels may have found that it is there after all.
func (f *sentinels) awaitPromotion() {
	for end := time.Now().Add(20 * time.Second); f.primary() == f.away && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
}

// promoteLagging has the replicas hear nothing of what the primary acknowledges,
// for a while, and then the primary be gone.
func (f *sentinels) promoteLagging() {
	f.take()
	for _, s := range f.servers {
		if s != f.away {
			s.Pause()
		}
	}
	time.Sleep(maxLag * time.Second / 2)
	f.away.Kill()
	for _, s := range f.servers {
		if s != f.away {
			s.Continue()
		}
	}
	f.awaitPromotion()
}

// bringBack has the primary that was follow the one that is.
func (f *sentinels) bringBack() {
	must(f.away.Start())
	f.follow()
}

// follow waits until all follow the primary.
func (f *sentinels) follow() {
	for _, s := range f.servers {
		if s != f.primary() {
			s.Await("master_link_status:up", "INFO", "replication")
		}
	}
}
