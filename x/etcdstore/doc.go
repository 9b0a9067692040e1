// Package etcdstore is an engine for fleet semaphores in etcd, for those who run
// it already and want their permits to be as safe as what else is in there.
// Import it, and [fleet.Open] knows
//
//	etcd://user:password@host:2379,host:2379,host:2379/?prefix=app/&ca=/etc/etcd/ca.pem
//
// Parameters are prefix, of all keys ("sema/" unless told); endpoints, members
// besides those before the path, which may be written as addresses of IPv6; tls
// (on or off), ca, cert and key, for members that are reached by TLS, each of
// which has a certificate for its own address; open (check or lazy), whether etcd
// has to be there when the store is opened; and idle, after how long a
// semaphore is forgotten that nobody uses and whose configuration was never
// changed (24h; never if negative).
//
// etcd serves a few hundred to a few thousand writes a second, each of them after
// its disks. Processes that share a semaphore share these. Who acquires more
// often than that takes pooled semaphores, or another engine.
//
// # What it promises
//
// What was acknowledged is written by a majority of the members. A leader that
// dies, a member that is cut off and a minority of failures lose nothing and let
// nobody in who is not to be: there is no window. Without a majority there are no
// answers, and holders stop to trust in their leases in time.
//
// A reply is never from memory: it belongs to a transaction that compared the
// state with what the reply was made of, or to a linearizable read after the
// call. So ownership is read anew before a permit is returned. An answer that was
// lost is found again: each write carries the name of its attempt.
//
// # How it is written down
//
// A semaphore is the model, [protocol.State], in the memory of each process that
// uses it, and a log in etcd of what each write has changed. To apply a batch is
// to put the next entry of the log in a transaction that compares the revision of
// the semaphore's head. If it fails, its other branch has the entries that came
// between, and the next attempt is made of them: one round trip an attempt. All
// who call in one process meanwhile are in one entry; and who has failed leaves
// its batches, in the transaction that fails, for the next who succeeds to take
// along. From time to time an entry has all of the state, and older ones are
// dropped.
//
// The alternative is a key for each lease and each waiter in line, under leases
// of etcd's. Each acquire and each release is then a write of its own: 256
// goroutines of one process do 5,000 pairs a second so, even if nobody waits for
// anybody, against 42,000 with the log; 64 in each of four processes 1,700 to
// 2,700, against 6,500. Batches of others that are taken along make a third of the
// latter. (Two cores, which others used as well; see the benchmarks.) And weights,
// ramps, rates and fences would have to be made of keys.
//
// # Time
//
// etcd has no clock that a transaction could read. Its leases have one: in
// seconds, of two at least, that begins anew with each new leader, and is renewed
// by whoever asks, while a session here is renewed by a batch and by that only
// once. So no session hangs on a lease of etcd's. Instead, processes measure the
// time between entries of the log, each on its own monotonic clock, and only what
// was surely passed is told to the model: the type pace has the argument. A
// holder is never robbed by anybody's clock, however wrong it is, or how often it
// steps. The dead are noticed as elsewhere, by who waits.
//
// Rates, ramps, and what people see are by the wall clocks of the machines: by
// the one that is most ahead. One that is wrong by an hour costs a rate a burst,
// once; until the others have caught up, time passes for them only while
// somebody is there to measure it. Keep clocks set.
//
// A process that looks at a semaphore and is gone at once measures nothing: to
// look with one command after the other does not bury the dead. To wait does.
//
// # What is in etcd
//
//	head/NAME          how a semaphore is: JSON, for people
//	log/NAME NUMBER    its log; the last entry of a small one has all of it
//	part/…             of entries that are too large for a value
//	call/…             batches for others to take along
//	hint/INSTANCE      under a lease, of who listens
//	floor              where the fences of deleted semaphores have come to
//
// What is larger than 2 KB is compressed; gunzip shows it. Nobody but clients may
// write there. etcd keeps every version until it is compacted, so have it do that
// by itself (--auto-compaction-mode=periodic --auto-compaction-retention=5m): a
// pair of acquire and release is some 100 bytes of history if many callers share
// the writes, and a few KB if one has two for itself. When its database is full,
// requests fail and say so, until there is room again.
package etcdstore
