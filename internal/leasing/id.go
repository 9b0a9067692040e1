package leasing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A leaseID is what the ID of a lease contains: which lease of which session, and a proof
// that it was granted to the bearer. Listings have leases and sessions, but no keys, so that
// a reader cannot make an ID.
//
// The proof of a server is a MAC of the lease under the session's key: a session that served
// one request serves the next one under the same key, so that the key itself would let the
// first bearer release what the second one holds. A manager of [KeyInID] uses a session once,
// and puts the key into the ID: so another process can use the lease through a service, which
// shows keys to no client.
type leaseID struct {
	semaphore string
	lease     protocol.Seq
	session   protocol.Session
	proof     string
}

// newLeaseID returns the ID of a lease whose session has that key.
func newLeaseID(semaphore string, lease protocol.Seq, session protocol.Session, key protocol.Key, keyInID bool) leaseID {
	if keyInID {
		return leaseID{semaphore, lease, session, keyMark + key.Hex()}
	}
	mac := hmac.New(sha256.New, key[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(lease)))
	return leaseID{semaphore, lease, session, hex.EncodeToString(mac.Sum(nil)[:proofSize])}
}

// proofSize is in bytes: as hard to guess as the key.
const proofSize = len(protocol.Key{})

// keyMark begins a proof that is the session's key.
const keyMark = "k"

func (h leaseID) id() string { return fmt.Sprintf("%d.%d.%s", h.lease, h.session, h.proof) }

// in returns the place of the lease in a snapshot and the owner of its session, or -1 if it is
// not there or the proof is wrong. Where the store shows no keys, it compares the one of the
// ID itself with each batch.
func (h leaseID) in(s protocol.Snapshot) (int, protocol.Owner) {
	owner, found := ownerOf(s, h.session)
	text, keyInID := strings.CutPrefix(h.proof, keyMark)
	if key, err := protocol.ParseKey(text); keyInID && err == nil && owner.Key == (protocol.Key{}) {
		owner.Key = key
	}
	proven := hmac.Equal([]byte(h.proof), []byte(newLeaseID(h.semaphore, h.lease, h.session, owner.Key, keyInID).proof))
	if !found || owner.Key == (protocol.Key{}) || !proven {
		return -1, owner
	}
	return slices.IndexFunc(s.Leases, func(l protocol.LeaseInfo) bool { return l.Seq == h.lease && l.Session == h.session }), owner
}

func parse(op, semaphore, id string) (leaseID, error) {
	if err := fleet.CheckName(semaphore); err != nil {
		return leaseID{}, err
	}
	parts := strings.Split(id, ".")
	if len(parts) == 3 && len(strings.TrimPrefix(parts[2], keyMark)) == hex.EncodedLen(proofSize) {
		lease, bad := strconv.ParseUint(parts[0], 10, 64)
		session, worse := strconv.ParseUint(parts[1], 10, 64)
		if bad == nil && worse == nil {
			return leaseID{semaphore, protocol.Seq(lease), protocol.Session(session), parts[2]}, nil
		}
	}
	return leaseID{}, &sema.Error{Op: op, Name: semaphore, Err: sema.ErrInvalid, Detail: "not the id of a lease; use the id that acquire returned, whole"}
}

// ownerOf returns the owner of a session, which its batches have to name.
func ownerOf(s protocol.Snapshot, session protocol.Session) (owner protocol.Owner, found bool) {
	for _, one := range s.Sessions {
		if one.Session == session {
			return one.Owner, true
		}
	}
	return protocol.Owner{}, false
}
