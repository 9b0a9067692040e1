package leasing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A leaseID is the content of a lease's ID: the lease, its session, and a proof that the
// lease was granted to the bearer. Listings show leases and sessions, but no keys, so that a
// reader of a listing cannot forge an ID.
//
// The proof of a server is a MAC of the lease under the session's key. A session serves one
// request after another under the same key, so the key itself would let the first bearer
// release what the second one holds. A manager with [KeyInID] uses a session once and puts
// the key into the ID. So another process can use the lease through a service, which shows
// keys to no client.
type leaseID struct {
	semaphore string
	lease     protocol.Seq
	session   protocol.Session
	proof     string
}

// newLeaseID returns the ID of a lease of the session with that key.
func newLeaseID(semaphore string, lease protocol.Seq, session protocol.Session, key protocol.Key, keyInID bool) leaseID {
	if keyInID {
		return leaseID{semaphore, lease, session, keyMark + key.Hex()}
	}
	return leaseID{semaphore, lease, session, proofOf(lease, newMAC(key))}
}

func newMAC(key protocol.Key) hash.Hash { return hmac.New(sha256.New, key[:]) }

// proofOf returns the proof of a lease. mac is new or reset.
func proofOf(lease protocol.Seq, mac hash.Hash) string {
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], uint64(lease))
	mac.Write(number[:])
	var sum [sha256.Size]byte
	return hex.EncodeToString(mac.Sum(sum[:0])[:proofSize])
}

// proofSize is the size of a proof in bytes: as hard to guess as the key.
const proofSize = len(protocol.Key{})

// keyMark is the prefix of a proof that is the session's key.
const keyMark = "k"

func (h leaseID) id() string {
	b := strconv.AppendUint(make([]byte, 0, 80), uint64(h.lease), 10)
	b = strconv.AppendUint(append(b, '.'), uint64(h.session), 10)
	return string(append(append(b, '.'), h.proof...))
}

// find returns the index of the lease in a snapshot and the owner of its session. The index
// is -1 if the lease does not exist or the proof is wrong. A store that shows no keys
// compares the key from the ID itself, with each batch.
func (h leaseID) find(s protocol.Snapshot) (int, protocol.Owner) {
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
		lease, leaseErr := strconv.ParseUint(parts[0], 10, 64)
		session, sessionErr := strconv.ParseUint(parts[1], 10, 64)
		if leaseErr == nil && sessionErr == nil {
			return leaseID{semaphore, protocol.Seq(lease), protocol.Session(session), parts[2]}, nil
		}
	}
	return leaseID{}, &sema.Error{Op: op, Name: semaphore, Err: sema.ErrInvalid, Detail: "not a lease id; want the complete id that acquire returned"}
}

// ownerOf returns the owner of a session, which its batches must contain.
func ownerOf(s protocol.Snapshot, session protocol.Session) (owner protocol.Owner, found bool) {
	for _, info := range s.Sessions {
		if info.Session == session {
			return info.Owner, true
		}
	}
	return protocol.Owner{}, false
}
