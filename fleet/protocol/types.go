package protocol

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
)

// Version is the protocol's. Neighbours understand each other: what one of them
// does not know in an [Op] it refuses with [Invalid], what it does not know in
// a [Result] it takes for a refusal.
const Version = 1

// A Micros is a time on an engine's clock, in microseconds since 1970, or a
// duration. Engines have no finer one in common.
type Micros int64

// A Kind says how permits come back.
type Kind uint8

const (
	Concurrency Kind = iota // when they are released
	Rate                    // when Config.Window has passed, and only then
)

// A Config is how a semaphore behaves. It is set when the semaphore is made and
// changed by [State.Configure] alone.
type Config struct {
	Kind       Kind
	Capacity   int64  // the target; 0 pauses
	Whole      int64  // of which Capacity is a share that may grow: what is too large is judged by it; 0: by Capacity
	Ramp       int64  // permits a second by which the capacity rises to the target; 0: at once
	MaxWaiters int64  // queued tickets at most; 0: no bound, NoWaiters: an acquire that does not fit is rejected
	TTL        Micros // how long a session lives without a word; fixed
	Window     Micros // of a Rate; fixed
	Numbered   bool   // leases have slot numbers from 0 to Capacity-1; fixed
	Draining   bool
	Version    uint64 // counts the changes
	Protocol   uint32 // the [Version] by which it was made; 0 is this one; rises by one at a time
}

// NoWaiters is the MaxWaiters of a semaphore on which nothing is queued.
const NoWaiters = -1

// A Session is one instance's use of one semaphore. Leases and tickets live as
// long as it is renewed.
type Session uint64

// A Key is the secret of a session: 128 random bits that its client generates.
// It is required in every batch and appears in no listing.
type Key [16]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never fails
	return k
}

// Hex returns the key as text, for stores to write down.
func (k Key) Hex() string { return hex.EncodeToString(k[:]) }

// ParseKey returns the key that Hex has written.
func ParseKey(text string) (k Key, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(k) {
		return Key{}, errors.New("the key of a session cannot be read: want 32 hexadecimal digits")
	}
	return Key(raw), nil
}

// String hides the key, so that it is in no log and no error.
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

// A Ticket is the name a session gives to one acquire of its own. It is not
// used twice.
type Ticket uint64

// A Seq numbers the grants of a semaphore; it names the lease and fences it.
type Seq uint64

// An Op is one wish in a batch. Its Verb says which fields count.
type Op struct {
	Verb   Verb
	Ticket Ticket // Acquire, Cancel, Settle, Split: of the new lease
	Lease  Seq    // Release, Split, Settle
	Weight int64  // Acquire; Split: of the new lease; Release: how much, 0 for all; Settle: what it has cost
	Least  int64  // Acquire, Pooled: the weight that suffices if more is not free, 0: Weight; Settle: the weight that was granted
	Wait   Micros // Acquire: for how long, at most; 0: without limit
	Try    bool   // Acquire: reject instead of queueing
	Pooled bool   // Acquire: a block that can be recalled

	Details Details // Acquire
}

// A Verb is what an Op does.
type Verb uint8

const (
	Acquire Verb = iota + 1
	Cancel       // the ticket, or the lease it was granted
	Release
	Split
	Settle // of a Rate: corrects what a grant has cost
)

// A Batch is what a session says at a time. One is on the way at a time, so
// that a lost reply is asked for again with the same Seq, and nothing is done
// twice or out of order.
type Batch struct {
	Session Session
	Owner   Owner
	Seq     uint64 // one more than the last; higher still, from who takes over a session and cannot know it
	Ack     uint64 // results up to this one were heard
	Ops     []Op
	End     bool // ends the session: all it has is free

	// Highest is the highest Seq that the client has seen of this semaphore. New
	// Seqs are higher, so that fences rise although a store has lost its data. More
	// than MaxLead ahead of the store's clock it is ignored.
	Highest Seq
}

// MaxLead bounds how far [Batch.Highest] may be ahead of the store's clock, so that
// no client can exhaust the numbers: three years in microseconds, more than any
// store that has restarted skips.
const MaxLead = 1e14

// A Status says whether a batch was heard.
type Status uint8

const (
	Applied  Status = iota
	Repeated        // heard before: answered, but it renews nothing
	Stale           // older than one that was heard
	Unknown         // there is no such session of this owner: it was never opened, or has expired
)

// A Reply is the engine's answer.
type Reply struct {
	Status  Status
	Results []Result // of tickets and leases, each until it is acknowledged
	More    bool     // there is more to do: call again at once
	Next    Micros   // speak again within; 0: by the next heartbeat
	Recall  bool     // others wait: give back what is not used of pooled blocks
	Config  Config
	InUse   int64

	// Undecided is how long it takes until the store knows whether all that is in
	// use is still held, if it is asked every sixth of a TTL until then; 0: it knows.
	Undecided Micros

	Wanted int64  // by those in line, at least
	First  int64  // by the first of them, at least
	Share  int64  // with Recall: what a session may keep that serves others of its own, see [State.Apply]
	Valid  Micros // trust the leases no longer than this from when the batch was sent; 0: the TTL alone says; negative: as long as before
}

// A Result is what became of a ticket or a lease.
type Result struct {
	N      uint64 // numbers the results of a session
	Kind   ResultKind
	Ticket Ticket
	Fence  Fence  // Granted
	Lease  Seq    // Granted, Revoked
	Weight int64  // Granted
	Slots  Slots  // Granted, if the semaphore is Numbered
	Note   string // Revoked: by whom and why, for people
}

// A ResultKind says what.
type ResultKind uint8

const (
	Granted ResultKind = iota + 1
	Full               // a try: too few are free
	QueueFull
	TooLarge
	Draining
	TimedOut
	Revoked   // a lease is to be given up; to acknowledge it is to do so
	Invalid   // an acquire of nothing, a split that cannot be, a verb that is not known
	Undecided // a try: the store cannot decide yet, see Reply.Undecided
)

// A Fence lets a resource tell those who may still write from those who may
// not, however many may at a time.
type Fence struct {
	Seq     Seq
	Floor   Seq     // the lowest Seq that is live
	Revoked []Range // those from Floor up to Seq that are not live
	Exact   bool    // Revoked is complete; not so for more than MaxFenced leases
}

// A Range is the Seqs from From up to and including To.
type Range struct{ From, To Seq }

// MaxFenced is up to how many live leases Revoked is told.
const MaxFenced = 4096

// Cushion is how much somebody who lends blocks on, and has so much in use, does
// well to keep ready: four times its share of what is free, where a share is as
// large as the part of what is lent that it uses; and at most half, since the
// first to come must not take everything. The less there is to spare, the less
// everybody keeps, long before anybody has to wait: recalls are for surprises.
// docs/scale.md compares it with asking for as much again as one has.
func (r Reply) Cushion(use int64) int64 {
	spare := max(0, r.Config.Capacity-r.InUse)
	if r.InUse <= 0 {
		return 0
	}
	return int64(min(float64(spare)/2, 4*float64(spare)*float64(use)/float64(r.InUse)))
}
