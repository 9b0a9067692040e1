//go:build unix

package main

import (
	"slices"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// A target is a running store and the faults that can be injected into it.
type target struct {
	url            string // for workers, through a proxy
	partitionedURL string // for half of the workers, if the network can be partitioned; "" otherwise
	api            string // for half of the workers, if there is a JSON API: comma-separated addresses
	direct         string // for the final check, without a proxy
	faults         []fault
}

// A setup starts a target.
type setup struct {
	name  string
	about string
	start func(s *storetest.Scope, ttl time.Duration) target
}

var setups = []setup{
	{"redis", "one Redis that loses no data (appendfsync always)", startRedis},
	{"forgetful", "one Redis that loses all data when it restarts", startForgetful},
	{"snapshots", "one Redis that restarts from old snapshots", startSnapshots},
	{"sentinel", "a Redis primary, two replicas, three Sentinels", startSentinel},
	{"parted", "a Redis primary, two replicas, three Sentinels; the primary and half of the clients can be partitioned from the rest", startPartitioned},
	{"postgres", "one PostgreSQL", startPostgres},
	{"pgbouncer", "PostgreSQL behind PgBouncer, in transaction mode", startPgBouncer},
	{"etcd", "three etcd members", startEtcd},
	{"embedded", "one `sema serve` with its permits in a file", startEmbedded},
	{"service", "three `sema serve` over one Redis", startService},
}

func startPostgres(s *storetest.Scope, ttl time.Duration) target {
	clock := storetest.NewClock(s)
	server := pgtest.Start(clock.For(s))
	net := storetest.NewProxy(s, server.Address)
	return target{
		url: throughProxy(server, net), direct: server.URL(),
		faults: slices.Concat(netFaults(net, ttl), postgresFaults(server, ttl), clockFaults(clock, ttl)),
	}
}

func throughProxy(server *pgtest.Server, net *storetest.Proxy) string {
	url := server.URLOf("postgres", "postgres")
	url.Host = net.Address
	return url.String()
}

func postgresFaults(server *pgtest.Server, ttl time.Duration) []fault {
	start := func() { must(server.Start()) }
	return []fault{
		{"PostgreSQL is killed", server.Kill, start, ttl / 6},
		{"PostgreSQL is stopped at once", server.StopAtOnce, start, ttl / 6},
		{"PostgreSQL is stopped in order, and down for longer than a TTL", server.Stop, start, 3 * ttl / 2},
		{"all backends are terminated", func() {
			_, err := server.Psql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
			must(err)
		}, nil, 0},
	}
}

func startPgBouncer(s *storetest.Scope, ttl time.Duration) target {
	server := pgtest.Start(s)
	pooler := pgtest.StartPgBouncer(s, server)
	return target{
		url: pooler.URL(), direct: server.URL(),
		faults: append(processFaults("PgBouncer", pooler.Process, ttl), postgresFaults(server, ttl)...),
	}
}

func startEtcd(s *storetest.Scope, ttl time.Duration) target {
	cluster := etcdtest.Start(s, 3)
	var affected *etcdtest.Node
	onLeader := func(do func(*etcdtest.Node)) func() {
		return func() { affected = cluster.Leader(); do(affected) }
	}
	undo := func(do func(*etcdtest.Node)) func() { return func() { do(affected) } }
	return target{
		url: cluster.URL(), direct: cluster.URL(),
		faults: []fault{
			{"the leader is killed", onLeader(func(n *etcdtest.Node) { n.Kill() }), undo(func(n *etcdtest.Node) { must(n.Start()) }), ttl},
			{"the leader is paused", onLeader(func(n *etcdtest.Node) { n.Pause() }), undo(func(n *etcdtest.Node) { n.Continue() }), 2 * ttl},
			{"the leader is cut off from the others", onLeader((*etcdtest.Node).Isolate), undo((*etcdtest.Node).Rejoin), 2 * ttl},
			{"a follower is killed", func() { affected = cluster.Followers()[0]; affected.Kill() }, undo(func(n *etcdtest.Node) { must(n.Start()) }), ttl},
			{"all members are killed", func() {
				for _, n := range cluster.Nodes {
					n.Kill()
				}
			}, func() { must(cluster.Start()) }, ttl / 6},
			{"history is compacted", cluster.Compact, nil, 0},
		},
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
