package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
)

// A leaseText is a lease in JSON.
type leaseText struct {
	Semaphore string   `json:"semaphore"`
	ID        string   `json:"id,omitempty"`    // for renew and release; "" for a rate, whose permits are not released
	Lease     uint64   `json:"lease,omitempty"` // number for listing and revoking it
	Weight    int64    `json:"weight"`
	TTL       seconds  `json:"ttl,omitempty"`       // the lease is lost this long after its last renewal
	ValidFor  seconds  `json:"valid_for,omitempty"` // from when the response is sent; renew within this time
	Fence     *fence   `json:"fence,omitempty"`     // fencing token for the protected resource
	Slots     []uint32 `json:"slots,omitempty"`     // numbers of its permits, ascending; nil: the semaphore is not numbered
}

// A fence is a fleet.Fence in JSON.
type fence struct {
	Seq     protocol.Seq `json:"seq"`
	Floor   protocol.Seq `json:"floor"`
	Revoked [][2]uint64  `json:"revoked"`
	Exact   bool         `json:"exact"`
}

// seconds is a duration that JSON represents in seconds.
type seconds time.Duration

// MarshalJSON implements [json.Marshaler].
func (s seconds) MarshalJSON() ([]byte, error) { return s.append(nil), nil }

func (s seconds) append(b []byte) []byte {
	return strconv.AppendFloat(b, time.Duration(s).Seconds(), 'f', -1, 64)
}

func newLeaseText(l leasing.Lease) *leaseText {
	t := &leaseText{Semaphore: l.Semaphore, ID: l.ID, Weight: l.Weight, TTL: seconds(l.TTL), ValidFor: seconds(l.Left.Round(time.Millisecond))}
	if l.ID != "" {
		t.Lease = uint64(l.Fence.Seq)
		t.Fence = &fence{Seq: l.Fence.Seq, Floor: l.Fence.Floor, Exact: l.Fence.Exact, Revoked: [][2]uint64{}}
		for _, r := range l.Fence.Revoked {
			t.Fence.Revoked = append(t.Fence.Revoked, [2]uint64{uint64(r.From), uint64(r.To)})
		}
	}
	if l.Slots != "" {
		t.Slots = slotsOf(l.Slots)
	}
	return t
}

// append appends the lease as [json.Marshal] writes it, without reflection: it is the response
// to most requests.
func (t *leaseText) append(b []byte) []byte {
	b = appendString(append(b, `{"semaphore":`...), t.Semaphore)
	if t.ID != "" {
		b = appendString(append(b, `,"id":`...), t.ID)
	}
	if t.Lease != 0 {
		b = strconv.AppendUint(append(b, `,"lease":`...), t.Lease, 10)
	}
	b = strconv.AppendInt(append(b, `,"weight":`...), t.Weight, 10)
	if t.TTL != 0 {
		b = t.TTL.append(append(b, `,"ttl":`...))
	}
	if t.ValidFor != 0 {
		b = t.ValidFor.append(append(b, `,"valid_for":`...))
	}
	if f := t.Fence; f != nil {
		b = strconv.AppendUint(append(b, `,"fence":{"seq":`...), uint64(f.Seq), 10)
		b = strconv.AppendUint(append(b, `,"floor":`...), uint64(f.Floor), 10)
		b = append(b, `,"revoked":[`...)
		for i, r := range f.Revoked {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(append(b, '['), r[0], 10)
			b = append(strconv.AppendUint(append(b, ','), r[1], 10), ']')
		}
		b = append(strconv.AppendBool(append(b, `],"exact":`...), f.Exact), '}')
	}
	for i, slot := range t.Slots {
		if i == 0 {
			b = append(b, `,"slots":[`...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(slot), 10)
	}
	if len(t.Slots) > 0 {
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendString appends a text as [json.Marshal] writes it.
func appendString(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || strings.IndexByte(`"\\<>&`, c) >= 0 {
			escaped, _ := json.Marshal(text) // a string cannot fail
			return append(b, escaped...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// respondLease responds with a lease.
func respondLease(w http.ResponseWriter, status int, l leasing.Lease) error {
	writeJSONHeader(w, status)
	_, _ = w.Write(append(newLeaseText(l).append(make([]byte, 0, 320)), '\n')) // fails if the client has disconnected
	return nil
}
