//go:build unix

package main

import (
	"slices"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/etcdtest"
	"github.com/sema-go/sema/internal/enginetest/pgtest"
)

// A target is an engine, running, and what can go wrong with it.
type target struct {
	url    string // for workers, by way of a network
	inside string // for half of them, if there are two sides
	api    string // for half of them, if it is a service: addresses, with commas between
	direct string // for who looks in the end
	faults []fault
}

// An engine is a kind of target.
type engine struct {
	name  string
	about string
	start func(s *enginetest.Scope, ttl time.Duration) target
}

var engines = []engine{
	{"redis", "one Redis that forgets nothing (appendfsync always)", startRedis},
	{"forgetful", "one Redis that forgets everything when it is started again", startForgetful},
	{"snapshots", "one Redis that is started again from old snapshots", startSnapshots},
	{"sentinel", "a Redis primary, two replicas, three Sentinels", startSentinel},
	{"parted", "a Redis primary, two replicas, three Sentinels; the primary and half of the clients are behind a wall", startParted},
	{"postgres", "one PostgreSQL", startPostgres},
	{"pgbouncer", "PostgreSQL behind PgBouncer, in transaction mode", startPgBouncer},
	{"etcd", "three etcd members", startEtcd},
	{"embedded", "a server of Sema's, with its permits in a file", startEmbedded},
	{"service", "three servers of Sema's over one Redis", startService},
}

func startPostgres(s *enginetest.Scope, ttl time.Duration) target {
	clock := enginetest.NewClock(s)
	server := pgtest.Start(clock.For(s))
	net := enginetest.NewProxy(s, server.Address)
	return target{
		url: throughProxy(server, net), direct: server.URL(),
		faults: slices.Concat(netFaults(net, ttl), postgresFaults(server, ttl), clockFaults(clock, ttl)),
	}
}

func throughProxy(server *pgtest.Server, net *enginetest.Proxy) string {
	url := server.URLOf("postgres", "postgres")
	url.Host = net.Address
	return url.String()
}

func postgresFaults(server *pgtest.Server, ttl time.Duration) []fault {
	start := func() { must(server.Start()) }
	return []fault{
		{"PostgreSQL is killed", server.Kill, start, ttl / 6},
		{"PostgreSQL is stopped at once", server.StopAtOnce, start, ttl / 6},
		{"PostgreSQL is stopped in order, and away for longer than a TTL", server.Stop, start, 3 * ttl / 2},
		{"all backends are terminated", func() {
			_, err := server.Psql("postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
			must(err)
		}, nil, 0},
	}
}

func startPgBouncer(s *enginetest.Scope, ttl time.Duration) target {
	server := pgtest.Start(s)
	pooler := pgtest.StartPgBouncer(s, server)
	return target{
		url: pooler.URL(), direct: server.URL(),
		faults: append(processFaults("PgBouncer", pooler.Process, ttl), postgresFaults(server, ttl)...),
	}
}

func startEtcd(s *enginetest.Scope, ttl time.Duration) target {
	cluster := etcdtest.Start(s, 3)
	var gone *etcdtest.Node
	onLeader := func(do func(*etcdtest.Node)) func() {
		return func() { gone = cluster.Leader(); do(gone) }
	}
	back := func(do func(*etcdtest.Node)) func() { return func() { do(gone) } }
	return target{
		url: cluster.URL(), direct: cluster.URL(),
		faults: []fault{
			{"the leader is killed", onLeader(func(n *etcdtest.Node) { n.Kill() }), back(func(n *etcdtest.Node) { must(n.Start()) }), ttl},
			{"the leader is paused", onLeader(func(n *etcdtest.Node) { n.Pause() }), back(func(n *etcdtest.Node) { n.Continue() }), 2 * ttl},
			{"the leader is cut off from the others", onLeader((*etcdtest.Node).Isolate), back((*etcdtest.Node).Rejoin), 2 * ttl},
			{"a follower is killed", func() { gone = cluster.Followers()[0]; gone.Kill() }, back(func(n *etcdtest.Node) { must(n.Start()) }), ttl},
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
