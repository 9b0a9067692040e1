// Package redisstore is an engine for fleet semaphores in Redis, or Valkey: one
// round trip for each batch of wishes, whatever is in it. Import it, and
// [fleet.Open] knows
//
//	redis://user:password@host:6379/0?prefix=app:
//	rediss://host?ca=/etc/ssl/ca.pem              (TLS; cert, key, server_name)
//	redis://s1?sentinel=main&addrs=s2,s3          (sentinel_user, sentinel_password)
//	redis://node1?cluster=1&addrs=node2
//	redis://a?sharded=1&addrs=b,c                 (servers that know nothing of each other)
//
// Use it where there is a Redis and its answers are trusted about as much as its
// failover is. For permits that must never be given twice, not even while a
// network is parted and nobody has looked at the warnings below, use an engine
// with a quorum, and let what is protected look at fences in any case.
//
// # What it promises
//
// Each call is atomic and on the server's clock, which may step. An answer that
// was lost is asked for again; nothing is done twice. A hint that was lost costs
// time, never a grant.
//
// A server that is started again, or promoted, may not know all that was
// acknowledged. It grants nothing for a TTL, and longer by [Options].Promotion
// (promotion=12s) if it was a replica: after that, nobody trusts in what was
// lost. Sessions of which it knows everything go on, with what they hold. Others
// are told that they are not known, and their permits are lost to them at once.
// So after a failover
//
//   - over-admission is 0 if min-replicas-to-write, and one, is more than half of
//     the servers, on each of them, and Promotion is min-replicas-max-lag and two
//     seconds or more: of a primary that is cut off and one that is promoted only
//     one has enough replicas, and the other refuses to answer in time, also if
//     it was asleep meanwhile. [Store.Warnings], and the log when a store is
//     opened, say if that is not so;
//   - without it, it is 0 if the old primary is dead. If it is only cut off, it
//     goes on serving the clients on its side, for as long as that lasts, and as
//     many permits again can be out.
//
// The same holds for a server that has lost everything, by a restart without
// persistence or by FLUSHALL. The TTL is counted from the first request, or from the
// start of the server if it cannot have lost anything before that: it has had no keys
// of this package, and INFO commandstats shows no command that loses keys. So a Redis
// that is used for the first time within a TTL of its start is waited for, too.
// docs/engines.md has what each setting of persistence promises.
//
// A semaphore moved to another node of a cluster is taken for one after a
// failover: it grants nothing for a TTL. A step of the server's clock forward just
// after a failover, before a semaphore is first used, shortens its wait by as much.
//
// With a maxmemory-policy other than noeviction Redis may forget who holds what.
// Open rejects such a server, or warns only (eviction=allow). Memory that is used up
// rejects batches with OOM ([fleet.FaultFull]), and nothing is half done.
//
// # What is in Redis
//
// All keys of a semaphore have one hash tag. For people:
//
//	redis-cli ZRANGE '{sema:db}:leases' 0 -1               who holds what
//	redis-cli ZRANGE '{sema:db}:queue' 0 -1                 who waits for what, in order
//	redis-cli ZRANGE '{sema:db}:sessions' 0 -1 WITHSCORES  which instances, and when they are dead unless they speak
//	redis-cli HMGET '{sema:db}' capacity draining version  how it is configured
//
// A lease lives as long as its session, so deadlines are those of sessions: to
// renew a thousand leases is to move one of them. Scores are microseconds since
// 1970 on the semaphore's own clock, which lags behind after the server's has
// stepped; a session that speaks often is noted up to a 64th of a TTL early. The
// rest is packed, and for the program alone. Nobody else may write.
//
// A semaphore that no administrator has configured is gone a week (and two TTLs)
// after its last use; a deleted one leaves a key for four weeks, which keeps its
// fences rising. If the server's clock steps forward by more than a week, a semaphore
// in use may be gone, too. Therefore semaphores that are created after half a week in
// which none was used grant nothing for a TTL. The key sema:server says which run of
// the server was met, and sema:server:used when a semaphore was last used.
//
// # What Redis runs
//
// The program is script/*.lua. From version 7 on it is loaded as a library of
// functions, named by a digest of its text, so that clients of several versions
// can share a server; FUNCTION LIST has them, and those that no client uses can
// be deleted. Older servers, and those that do not allow it, run it as a script,
// several times as slowly. A user needs
//
//	+@read +@write +@connection +fcall +function|load +eval +evalsha +info +time +publish +subscribe +unsubscribe
//	~{sema:* ~sema:* &sema:*
//
// and +config|get for the warnings to be complete. List goes through all keys of
// the server.
package redisstore
