package desk

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

// A handle is what the ID of a lease says: which lease of which session, and a proof
// that it was granted to the bearer.
//
// The proof is a MAC of the lease under the session's key. A listing shows leases and
// sessions, but no keys, so that a reader cannot make an ID; and a session that served
// one request serves the next one under the same key, so that the key itself in an ID
// would let the first bearer release what the second one holds.
type handle struct {
	semaphore string
	lease     protocol.Seq
	session   protocol.Session
	proof     string
}

// newHandle returns the handle of a lease whose session has that key.
func newHandle(semaphore string, lease protocol.Seq, session protocol.Session, key protocol.Key) handle {
	mac := hmac.New(sha256.New, key[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(lease)))
	return handle{semaphore, lease, session, hex.EncodeToString(mac.Sum(nil)[:proofSize])}
}

// proofSize is in bytes: as hard to guess as the key.
const proofSize = len(protocol.Key{})

func (h handle) id() string { return fmt.Sprintf("%d.%d.%s", h.lease, h.session, h.proof) }

// in returns the place of the lease in a snapshot, or -1 if it is not there, or not
// the principal's, or the proof is wrong.
func (h handle) in(s protocol.Snapshot, principal string) int {
	owner, found := ownerOf(s, h.session)
	proven := hmac.Equal([]byte(h.proof), []byte(newHandle(h.semaphore, h.lease, h.session, owner.Key).proof))
	if !found || owner.Principal != principal || owner.Key == (protocol.Key{}) || !proven {
		return -1
	}
	return slices.IndexFunc(s.Leases, func(l protocol.LeaseInfo) bool { return l.Seq == h.lease && l.Session == h.session })
}

func parse(op, semaphore, id string) (handle, error) {
	if err := fleet.CheckName(semaphore); err != nil {
		return handle{}, err
	}
	parts := strings.Split(id, ".")
	if len(parts) == 3 && len(parts[2]) == hex.EncodedLen(proofSize) {
		lease, bad := strconv.ParseUint(parts[0], 10, 64)
		session, worse := strconv.ParseUint(parts[1], 10, 64)
		if bad == nil && worse == nil {
			return handle{semaphore, protocol.Seq(lease), protocol.Session(session), parts[2]}, nil
		}
	}
	return handle{}, &sema.Error{Op: op, Name: semaphore, Err: sema.ErrInvalid, Detail: "not the id of a lease; use the id that acquire returned, whole"}
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
