// Package etcdstore stores fleet semaphores in etcd. It loses no permit and grants none
// twice, whatever fails. Import it, and [fleet.Open] accepts
//
//	etcd://user:password@host:2379,host:2379,host:2379/?prefix=app/&ca=/etc/etcd/ca.pem
//
// Parameters are
//
//	prefix          of all keys; default "sema/"
//	endpoints       members besides those before the path, which may be IPv6 addresses
//	tls             on or off
//	ca, cert, key   files for members that are reached by TLS, each of which has a
//	                certificate for its own address
//	open            check or lazy: whether etcd must be reachable when the store is opened
//	idle            the time after which an unused semaphore is deleted whose
//	                configuration was never changed; default 24h, never if negative
//
// etcd serves a few hundred to a few thousand writes a second: each waits for the disks.
// Processes that share a semaphore share these writes. For more acquires use pooled
// semaphores, or another store.
//
// # Guarantees
//
// What was acknowledged is written by a majority of the members. A leader that crashes, a
// member that is partitioned and a minority of failures lose nothing and grant nothing
// twice: there is no window in which they could. Without a majority there are no replies,
// and holders stop relying on their leases in time.
//
// A reply is never from memory alone. It belongs to a transaction that compared the state
// with what the reply is based on, or to a linearizable read after the call. So ownership
// is read again before an acquire returns its permit. A reply that was lost is found
// again: each write carries the name of its attempt.
//
// # How it is stored
//
// Each process that uses a semaphore has the model, [protocol.State], in its memory. etcd
// has a log of what each write has changed. A batch is applied by putting the next entry
// of the log in a transaction that compares the revision of the semaphore's head
// (optimistic concurrency). If it fails, its other branch returns the entries between, and
// the next attempt is based on them: one round trip an attempt. All calls of one process
// meanwhile share one entry (group commit). A process whose transaction fails publishes
// its batches in that transaction, and the next process that succeeds applies them with
// its own (flat combining). From time to time an entry has all of the state, and older
// ones are removed.
//
// The alternative is a key for each lease and each queued waiter, under leases of etcd.
// Then each acquire and each release is a write of its own: 256 goroutines of one process
// do 5,000 pairs a second that way, even if none has to wait, against 42,000 with the log;
// 64 in each of four processes do 1,700 to 2,700, against 6,500. A third of the latter is
// due to combining. (Two cores, under other load; see the benchmarks.) And weights, ramps,
// rates and fences would have to be built from keys.
//
// # Time
//
// etcd has no clock that a transaction could read. Its leases have one, but it counts
// seconds, two at least, and restarts with each new leader. Any client renews such a
// lease, while a session here is renewed by a batch, once. So no session depends on a
// lease of etcd. Instead, processes measure the time between entries of the log, each on
// its own monotonic clock, and the model gets only time that has certainly passed: the
// comment of type pace proves it. No clock, however wrong, and however often it steps,
// ends the session of a holder that renews. Expired sessions are noticed by waiters, as in
// other stores.
//
// Rates, ramps and listed times use the wall clocks of the machines: the one that is most
// ahead. A clock that is an hour ahead costs a rate a burst, once. Until the other clocks
// have caught up, time passes for rates and ramps only while a process measures it. Keep
// clocks set.
//
// A process that inspects a semaphore and exits at once measures nothing: a series of
// such commands does not end expired sessions. A waiter does.
//
// # What is in etcd
//
//	head/NAME          a semaphore: configuration and load, as JSON; lists read nothing else
//	log/NAME NUMBER    its log; the last entry of a small one has all of it
//	part/…             of entries that are too large for a value
//	batch/…            batches for other processes to apply
//	notify/INSTANCE    under a lease, while the instance listens
//	floor              the highest Seq of semaphores that were deleted
//
// The data version is 1. Keys of unreleased versions of Sema are rejected: delete
// them, or use another prefix.
//
// Values larger than 2 KB are compressed; gunzip shows them. Only clients may write
// there. etcd keeps every version until it is compacted, so configure it to do that
// (--auto-compaction-mode=periodic --auto-compaction-retention=5m): a pair of acquire
// and release is some 100 bytes of history if many callers share the writes, and a
// few KB if one caller needs two writes for itself. When its database is full, requests
// fail with [fleet.FaultFull] until there is room again.
package etcdstore
