// Package etcdstore stores fleet semaphores in etcd. It loses no permit and grants no
// permit twice, whatever fails. With this package imported, [fleet.Open] accepts
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
// etcd serves a few hundred to a few thousand writes a second, because each write waits
// for the disks. Processes that share a semaphore share these writes. For more acquires
// use pooled semaphores, or another store.
//
// # Guarantees
//
// A reply is sent after a majority of the members has written the change. A crashed
// leader, a partitioned member or the failure of a minority therefore loses nothing and
// causes no second grant. Without a majority there are no replies, and holders stop
// relying on their leases in time.
//
// A reply is never from memory alone. It belongs to a transaction that compared the state
// with the one that the reply is based on, or to a linearizable read after the call. So
// ownership is read from etcd again before an acquire returns its permit. Each write
// contains the name of its attempt. If the reply to a write is lost, the client finds the
// write by that name.
//
// # How it is stored
//
// Each process that uses a semaphore has the model, [protocol.State], in its memory. etcd
// contains a log with the changes of each write. To apply a batch, a transaction compares
// the revision of the semaphore's head and puts the next entry of the log (optimistic
// concurrency). If the comparison fails, the transaction returns the entries that other
// processes have written, and the next attempt is based on them. So an attempt takes one
// round trip. Calls that arrive in a process during a write share the next entry (group
// commit). A process whose transaction fails publishes its batches in that transaction, and
// the next process that succeeds applies them with its own (flat combining). From time to
// time an entry contains the whole state, and older entries are removed.
//
// The alternative is a key for each lease and each queued waiter, under leases of etcd.
// Then each acquire and each release is a write of its own, and weights, ramps, rates and
// fences have to be built from keys. Measured in pairs a second, on two cores under other
// load (see the benchmarks):
//
//	                                     keys             log
//	one process with 256 goroutines      5,000            42,000
//	four processes with 64 each          1,700 to 2,700   6,500
//
// With keys, no caller had to wait. Combining accounts for a third of the last figure.
//
// # Time
//
// etcd has no clock that a transaction can read. Its leases have a clock, but that counts
// in seconds, at least two, and restarts with each new leader. And any client can renew a
// lease of etcd, whereas a session is renewed by a batch that is applied once. So sessions
// do not depend on leases of etcd. Instead, processes measure the time between entries of
// the log, each on its own monotonic clock. The model gets only time that has certainly
// passed; the comment of type pace contains the proof. No clock, however wrong and however
// often it steps, ends the session of a holder that renews it. Waiters detect expired
// sessions, as in other stores.
//
// Rates, ramps and listed times use the wall clock of the machine that is most ahead. A
// clock that is an hour ahead costs a rate one burst. Until the other clocks have caught
// up, time passes for rates and ramps only while a process measures it. Keep clocks set.
//
// A process that inspects a semaphore and exits at once measures nothing. A series of such
// commands does not end expired sessions; a waiter does.
//
// # What is in etcd
//
//	head/NAME          a semaphore: configuration and load, as JSON; lists read nothing else
//	log/NAME NUMBER    its log; the last entry of a small one contains the whole state
//	part/…             of entries that are too large for a value
//	batch/…            batches for other processes to apply
//	notify/INSTANCE    under a lease, while the instance listens
//	floor              the highest Seq of semaphores that were deleted
//
// The data version is 1. Keys of unreleased versions of Sema are rejected: delete
// them, or use another prefix.
//
// Values larger than 2 KB are compressed; gunzip shows them. No other program may write to
// these keys. etcd keeps every version until it is compacted, so configure compaction:
// --auto-compaction-mode=periodic --auto-compaction-retention=5m. A pair of acquire and
// release leaves some 100 bytes of history if many callers share the writes. It leaves a
// few KB if one caller needs two writes for itself. When the database is full, requests
// fail with [fleet.FaultFull] until there is room again.
package etcdstore
