// Package redisstore keeps fleet semaphores in Redis, or Valkey: each batch takes one
// round trip, whatever it contains. Import it, and [fleet.Open] accepts
//
//	redis://user:password@host:6379/0?prefix=app:
//	rediss://host?ca=/etc/ssl/ca.pem              (TLS; cert, key, server_name)
//	redis://s1?sentinel=main&addrs=s2,s3          (sentinel_user, sentinel_password)
//	redis://node1?cluster=1&addrs=node2
//	redis://a?sharded=1&addrs=b,c                 (independent servers)
//
// Use it where there is a Redis whose failover is set up as below. Where permits must
// never be granted twice, not even during a network partition on servers whose warnings
// were ignored, use a store with a quorum, and check fences in any case.
//
// # Guarantees
//
// Each call is atomic and uses the server's clock, which may step. A batch whose reply
// was lost is sent again, and is applied once. A lost notification costs time, never a
// grant.
//
// A server that was restarted, or promoted, may lack acknowledged writes. It grants
// nothing for a TTL, and longer by [Options].Promotion (promotion=12s) if it was a
// replica: after that, no holder relies on what was lost. Sessions of which it has
// everything go on, with their leases. Other sessions are unknown to it, and their
// clients lose their permits at once. So after a failover
//
//   - over-admission is 0 if min-replicas-to-write, plus one, is more than half of the
//     servers, on each of them, and Promotion is at least min-replicas-max-lag and two
//     seconds: of a primary that is cut off and one that is promoted only one has enough
//     replicas, and the other rejects requests in time, also if it was suspended
//     meanwhile. [Store.Warnings], and the log when a store is opened, report other
//     settings;
//   - otherwise it is 0 if the old primary is down. If it is only cut off, it goes on
//     serving the clients on its side for as long as that lasts, and up to the
//     capacity can be held on each side.
//
// The same holds for a server that has lost everything, by a restart without
// persistence or by FLUSHALL. The TTL is counted from the first request, or from the
// start of the server if it cannot have lost anything before that: it has had no keys
// of this package, and INFO commandstats shows no command that removes keys. So a Redis
// that is used for the first time within a TTL of its start grants nothing at first
// either. docs/stores.md lists what each setting of persistence guarantees.
//
// A semaphore moved to another node of a cluster is treated as after a failover: it
// grants nothing for a TTL. A step of the server's clock forward just after a
// failover, before a semaphore is first used, shortens this time by as much.
//
// With a maxmemory-policy other than noeviction Redis may remove leases. Open rejects
// such a server, or only warns (eviction=allow). A server whose memory is used up
// rejects batches with OOM ([fleet.FaultFull]), and applies no part of them.
//
// # Keys
//
// All keys of a semaphore have one hash tag. These can be read with redis-cli:
//
//	redis-cli ZRANGE '{sema:db}:leases' 0 -1               leases
//	redis-cli ZRANGE '{sema:db}:queue' 0 -1                waiters, in order
//	redis-cli ZRANGE '{sema:db}:sessions' 0 -1 WITHSCORES  instances, and when they expire unless they are renewed
//	redis-cli HMGET '{sema:db}' capacity draining version  the configuration
//	redis-cli ZRANGE sema:names 0 -1                       names of semaphores
//
// A lease lasts as long as its session, so only sessions have deadlines: a thousand
// leases are renewed by moving one deadline. Scores are microseconds since 1970 on the
// semaphore's own clock, which lags behind after the server's has stepped; the score of
// a session that sends batches often is up to a 64th of a TTL early. Other fields are
// packed for the program. No other program may write to these keys.
//
// A semaphore that no administrator has configured expires a week (and two TTLs) after
// its last use; its name leaves the index some time later. A deleted one leaves a key
// for four weeks, so that fences of the next one are higher. If the server's clock steps
// forward by more than a week, a semaphore in use may expire, too. Therefore semaphores
// that are created after half a week in which none was used grant nothing for a TTL. The
// key sema:server has the run of the server that replied last, and sema:server:used the
// time when a semaphore was last used.
//
// The layout of the packed fields is data version 1. Semaphores of another layout are
// rejected with [github.com/sema-go/sema/fleet/protocol.ErrVersion]; those of an unreleased version can be deleted.
//
// In a cluster the index of names is on one node, and clients update it after they have
// opened or deleted a semaphore. While that node is down, new semaphores are not listed
// until they are next opened.
//
// # The program in Redis
//
// The program is script/*.lua. A server from version 7 on loads it as a library of
// functions, named by a digest of its text, so that clients of several versions can share
// a server; FUNCTION LIST shows them, and those that no client uses can be deleted. Older
// servers, and those that do not allow it, run it as a script, several times as slowly. A
// user needs
//
//	+@read +@write +@connection +fcall +function|load +eval +evalsha +info +time +publish +subscribe +unsubscribe
//	~{sema:* ~sema:* &sema:*
//
// and +config|get for the warnings to be complete.
package redisstore
