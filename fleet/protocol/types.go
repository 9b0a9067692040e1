package protocol

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"
)

// Version is the version of the protocol. Adjacent versions interoperate: an [Op] with an
// unknown verb is rejected with [Invalid], and a [Result] of an unknown kind counts as a
// rejection.
const Version = 1

// A Micros is a time on a store's clock, in microseconds since 1970, or a duration.
// Microseconds are the finest resolution that all stores have.
type Micros int64

func (m Micros) duration() time.Duration { return time.Duration(m) * time.Microsecond }

// A Kind selects when permits are returned.
type Kind uint8

const (
	Concurrency Kind = iota // when they are released
	Rate                    // when Config.Window has passed, and only then
)

// A Config is the stored configuration of a semaphore. It is set when the semaphore is
// created, and only [State.Configure] changes it.
type Config struct {
	Kind       Kind
	Capacity   int64  // target capacity; 0 pauses the semaphore
	Whole      int64  // total of which Capacity is a share that may grow; weights above it are TooLarge; 0: Capacity is the total
	Ramp       int64  // permits per second by which the capacity rises to the target; 0: at once
	MaxWaiters int64  // limit of queued tickets; 0: no bound, NoWaiters: an acquire that does not fit is rejected
	TTL        Micros // time without a batch after which a session expires; fixed
	Window     Micros // length of the window of a Rate; fixed
	Numbered   bool   // leases have slot numbers from 0 to Capacity-1; fixed
	Draining   bool
	Version    uint64 // incremented by each change
	Protocol   uint32 // the protocol [Version] of the creator; 0 is this version; raised by one at a time
}

// NoWaiters is the MaxWaiters of a semaphore that queues no acquires.
const NoWaiters = -1

// A Session is one instance's use of one semaphore. Its leases and tickets end when it is
// no longer renewed.
type Session uint64

// A Key is the secret of a session: 128 random bits that its client generates.
// It is required in every batch and appears in no listing.
type Key [16]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// Hex returns the key as text, for stores to keep.
func (k Key) Hex() string { return hex.EncodeToString(k[:]) }

// ParseKey returns the key that Hex has encoded.
func ParseKey(text string) (k Key, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(k) {
		return Key{}, errors.New("invalid session key: want 32 hexadecimal digits")
	}
	return Key(raw), nil
}

// String hides the key, so that no log and no error contains it.
func (k Key) String() string { return "[key]" }

// GoString hides the key.
func (k Key) GoString() string { return "protocol.Key{…}" }

// An Owner is the client to which a session belongs. A batch with another owner
// than the session's gets the reply for an unknown session.
type Owner struct {
	Key       Key
	Principal string // the identity that a server has authenticated; empty for direct access to the store
}

// An Opener describes the client that opens a session.
type Opener struct {
	Client    Client
	Owner     Owner
	Highest   Seq  // see [Batch.Highest]
	MustExist bool // fail with io/fs.ErrNotExist instead of creating the semaphore
}

// A Ticket identifies one acquire of a session. The client chooses it and uses it only
// once.
type Ticket uint64

// A Seq numbers the grants of a semaphore. It identifies the lease and is its fencing token.
type Seq uint64

// An Op is one operation in a batch. Its Verb determines which fields are used.
type Op struct {
	Verb   Verb
	Try    bool   // Acquire: reject instead of queueing
	Pooled bool   // Acquire: a block, which can be recalled
	Ticket Ticket // Acquire, Cancel, Settle; Split: ticket of the new lease
	Lease  Seq    // Release, Split, Settle
	Weight int64  // Acquire; Split: weight of the new lease; Release: weight to release, 0 for all; Settle: the actual cost
	Least  int64  // Acquire, Pooled: the weight that suffices if more is not free, 0: Weight; Settle: the weight that was granted
	Wait   Micros // Acquire: the longest wait; 0: without limit

	Details *Details // Acquire; nil if empty
}

// A Verb selects what an Op does.
type Verb uint8

const (
	Acquire Verb = iota + 1
	Cancel       // cancels the ticket, or releases the lease that was granted to it
	Release
	Split
	Settle // on a Rate: corrects the cost of a grant
)

// A Batch is one message of a session. At most one batch is in flight at a time. If its
// reply is lost it is sent again with the same Seq, so that nothing is applied twice or
// out of order.
type Batch struct {
	Session Session
	Owner   Owner
	Seq     uint64 // one more than the last; larger steps are allowed, for a client that takes over a session and does not know the last one
	Ack     uint64 // results up to this number were received
	Ops     []Op
	End     bool // ends the session and frees its leases and tickets

	// Highest is the highest Seq of this semaphore that the client has seen. New Seqs are
	// higher, so that fences rise even after the store has lost its data. A value more than
	// MaxLead ahead of the store's clock is ignored.
	Highest Seq
}

// MaxLead bounds how far [Batch.Highest] may be ahead of the store's clock, so that no
// client can exhaust the numbers. It is three years in microseconds, more than a store
// skips when it restarts.
const MaxLead = 1e14

// A Status reports whether a batch was applied.
type Status uint8

const (
	Applied  Status = iota
	Repeated        // applied before: the reply is sent again, but the session is not renewed
	Stale           // older than the last batch that was applied
	Unknown         // no such session of this owner: it was never opened, or has expired
)

// A Reply is the store's reply to a batch.
type Reply struct {
	Status  Status
	Results []Result // of tickets and leases; each is repeated until it is acknowledged
	More    bool     // there is more to do: send again at once
	Next    Micros   // send again within this time; 0: the next heartbeat suffices
	Recall  bool     // release the unused part of pooled blocks: other sessions wait, the semaphore drains, or more than its capacity is in use
	Config  Config
	InUse   int64

	// Undecided is the time until the store can decide whether all permits in use are still
	// held; 0: it is decided. The client has to poll every sixth of a TTL until then.
	Undecided Micros

	Wanted int64  // sum of the least weights of the queue
	First  int64  // least weight of the first ticket in the queue
	Share  int64  // with Recall: weight that a session with clients of its own may keep, see [State.Apply]
	Valid  Micros // longest time from sending the batch for which the leases are valid; 0: the TTL alone decides; negative: unchanged
}

// A Result is the result of a ticket, or the revocation of a lease.
type Result struct {
	N      uint64 // numbers the results of a session
	Kind   ResultKind
	Ticket Ticket
	Fence  Fence  // Granted
	Lease  Seq    // Granted, Revoked
	Weight int64  // Granted
	Slots  Slots  // Granted, if the semaphore is Numbered
	Note   string // Revoked: reason and operator, as text to display
}

// A ResultKind is the kind of a [Result].
type ResultKind uint8

const (
	Granted ResultKind = iota + 1
	Full               // a try: too little is free
	QueueFull
	TooLarge
	Draining
	TimedOut
	Revoked   // the lease must be given up; the acknowledgement releases it
	Invalid   // an acquire of weight 0 or less, an impossible split, an unknown verb
	Undecided // a try: the store cannot decide yet, see Reply.Undecided
)

// A Fence lets a resource decide which holders may still write, whatever the number of
// holders at a time.
type Fence struct {
	Seq     Seq
	Floor   Seq     // the lowest Seq that is live
	Revoked []Range // the Seqs from Floor up to Seq that are not live
	Exact   bool    // Revoked is complete; false with more than MaxFenced live leases
}

// A Range is the Seqs from From to To, both included.
type Range struct{ From, To Seq }

// MaxFenced is the number of live leases up to which [Fence.Revoked] is reported.
const MaxFenced = 4096

// Cushion returns how many free permits a session should keep that grants parts of its
// blocks to others. use is the weight that those others use.
//
// The result is four times the session's share of the free permits, in proportion to its
// part of all permits in use. It is at most half of the free permits, so that the first
// session does not take everything. The fewer permits are free, the fewer each session
// keeps, long before a caller has to wait. Recalls handle sudden demand. docs/scale.md
// compares this with a cushion as large as the use.
func (r Reply) Cushion(use int64) int64 {
	spare := max(0, r.Config.Capacity-r.InUse)
	if r.InUse <= 0 {
		return 0
	}
	return int64(min(float64(spare)/2, 4*float64(spare)*float64(use)/float64(r.InUse)))
}
