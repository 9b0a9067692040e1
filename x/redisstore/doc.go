// Package redisstore stores fleet semaphores in Redis or Valkey. A batch takes one round
// trip, however many operations it contains. With this package imported, [fleet.Open]
// accepts
//
//	redis://user:password@host:6379/0?prefix=app:
//	rediss://host?ca=/etc/ssl/ca.pem              (TLS; cert, key, server_name)
//	redis://s1?sentinel=main&addrs=s2,s3          (sentinel_user, sentinel_password)
//	redis://node1?cluster=1&addrs=node2
//	redis://a,b,c?sharded=1                       (independent servers)
//
// Further addresses are in addrs, or in the host, separated by commas.
//
// Use it with a Redis whose failover is configured as described below. If permits must
// never be granted twice, not even during a network partition of servers whose warnings
// were ignored, use a store with a quorum. Check fences in any case.
//
// # Guarantees
//
// Each call is atomic and uses the server's clock, which may step. A batch whose reply
// was lost is sent again, and is applied once. A lost notification costs time, never a
// grant.
//
// A server that was restarted or promoted may lack acknowledged writes. It grants
// nothing for a TTL, plus [Options].Promotion (promotion=12s) if it was a replica. After
// that time no holder relies on a lost lease. Sessions whose state is complete continue,
// with their leases. Other sessions are unknown to the server, and their clients lose
// their permits at once. After a failover
//
//   - over-admission is 0 if, on each server, min-replicas-to-write plus one is more than
//     half of the servers, and Promotion is at least min-replicas-max-lag plus two
//     seconds. Of a primary that is cut off and one that is promoted, only one then has
//     enough replicas. The other rejects requests in time, even if it was suspended
//     meanwhile. [Store.Warnings], and the log when a store is opened, report other
//     settings;
//   - otherwise over-admission is 0 if the old primary is down. An old primary that is
//     only cut off continues to serve the clients on its side of the partition, for as
//     long as the partition lasts. Up to the capacity can then be held on each side.
//
// The same holds for a server that has lost all data, by a restart without persistence
// or by FLUSHALL. The TTL is counted from the first request. It is counted from the start
// of the server if nothing can have been lost since then: the server has had no keys of
// this package, and INFO commandstats shows no command that removes keys. A Redis that is
// first used within a TTL of its start therefore grants nothing until that TTL has
// passed. docs/stores.md lists what each persistence setting guarantees.
//
// A semaphore moved to another node of a cluster is treated as after a failover: it
// grants nothing for a TTL. A step forward of the server's clock between a failover and
// the first use of a semaphore shortens this time by its length.
//
// With a maxmemory-policy other than noeviction, Redis may remove leases. Open rejects
// such a server, or only warns with eviction=allow. A server that is out of memory
// rejects batches with OOM ([fleet.FaultFull]) and applies no part of them.
//
// # Keys
//
// All keys of a semaphore have the same hash tag. These can be read with redis-cli:
//
//	redis-cli ZRANGE '{sema:db}:leases' 0 -1               leases
//	redis-cli ZRANGE '{sema:db}:queue' 0 -1                waiters, in order
//	redis-cli ZRANGE '{sema:db}:sessions' 0 -1 WITHSCORES  instances, and when they expire unless renewed
//	redis-cli HMGET '{sema:db}' capacity draining version  the configuration
//	redis-cli ZRANGE sema:names 0 -1                       names of semaphores
//
// A lease lasts as long as its session, so only sessions have deadlines: moving one
// deadline renews a thousand leases. Scores are microseconds since 1970 on the
// semaphore's own clock, which lags after the server's clock has stepped. The score of a
// session that sends batches often is up to a 64th of a TTL early. The Lua program packs
// the other fields. No other program may write to these keys.
//
// A semaphore that no administrator has configured expires a week and two TTLs after its
// last use. Its name is removed from the index some time later. A deleted semaphore
// leaves a key for four weeks, so that the next semaphore of the name has higher fences.
// If the server's clock steps forward by more than a week, a semaphore in use may expire
// as well. A semaphore that is created after half a week in which no semaphore was used
// therefore grants nothing for a TTL. The key sema:server contains the run of the server
// that replied last, and sema:server:used the time when a semaphore was last used.
//
// The layout of the packed fields is data version 1. Semaphores of another layout are
// rejected with [github.com/sema-go/sema/fleet/protocol.ErrVersion]; those of an
// unreleased version can be deleted.
//
// In a cluster the index of names is on one node. Clients update it after they have
// opened or deleted a semaphore. A semaphore that is created while that node is down is
// not listed until it is next opened.
//
// # The program in Redis
//
// The program is script/*.lua. Servers from version 7 on load it as a library of
// functions. The name of the library contains a digest of its text, so that clients of
// several versions can share a server. FUNCTION LIST shows the libraries, and those that
// no client uses can be deleted. Older servers, and those that do not allow libraries,
// run the program as a script, several times as slowly. A user needs
//
//	+@read +@write +@connection +fcall +function|load +eval +evalsha +info +time +publish +subscribe +unsubscribe
//	~{sema:* ~sema:* &sema:*
//
// and +config|get for the warnings to be complete.
package redisstore
