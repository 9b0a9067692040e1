package redisstore

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// Leases, tickets and sessions are members of sorted sets. They are text that can be
// read with redis-cli:
//
//	1763201234567891 session=1763201234567880 weight=1 since=1763201234569000 as=permit details=site=main.go:44 holder=web-1
//	1763201234567892 session=1763201234567880 weight=3 since=1763201234569000 as=permit slots=0-1,4 details=
//	17 session=1763201234567881 weight=2 least=2 since=1763201234569000 until=0 as=permit details=labels="job=nightly shard=3"
//	1763201234567880 web-1/4711/0badcafe
//
// The last field may contain spaces.

func parseLease(member string) (protocol.LeaseInfo, error) {
	f, err := parseMember(member, "session", "weight", "since")
	details, bad := protocol.DecodeDetails(f.details)
	return protocol.LeaseInfo{
		Seq: protocol.Seq(f.name), Session: protocol.Session(f.numbers[0]), Weight: f.numbers[1], Since: protocol.Micros(f.numbers[2]),
		Pooled: f.is("block"), Revoked: f.is("revoked"), Slots: protocol.Slots(f.slots), Details: details,
	}, cmp.Or(err, bad)
}

func parseTicket(member string) (protocol.TicketInfo, error) {
	f, err := parseMember(member, "session", "weight", "least", "since", "until")
	details, bad := protocol.DecodeDetails(f.details)
	return protocol.TicketInfo{
		Ticket: protocol.Ticket(f.name), Session: protocol.Session(f.numbers[0]), Weight: f.numbers[1], Since: protocol.Micros(f.numbers[3]), Details: details,
	}, cmp.Or(err, bad)
}

func parseSession(member, client string) (protocol.SessionInfo, error) {
	number, instance, ok := strings.Cut(member, " ")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !ok {
		return protocol.SessionInfo{}, fmt.Errorf("%q: want a session number and an instance", member)
	}
	described, err := protocol.DecodeClient(instance, client)
	return protocol.SessionInfo{Session: protocol.Session(id), Client: described}, err
}

// fields are the parsed fields of a member.
type fields struct {
	name    uint64
	numbers [5]int64
	as      string
	slots   string
	details string
}

func (f fields) is(what string) bool { return slices.Contains(strings.Split(f.as, ","), what) }

// parseMember parses a member: a number, numeric fields with these names, as, slots if
// present, and details.
func parseMember(member string, names ...string) (f fields, err error) {
	bad := func() (fields, error) {
		return fields{}, fmt.Errorf("%q: want a number, %s=, as= and details=", member, strings.Join(names, "=, "))
	}
	number, rest, _ := strings.Cut(member, " ")
	if f.name, err = strconv.ParseUint(number, 10, 64); err != nil {
		return bad()
	}
	for i, name := range names {
		value, ok := cutField(&rest, name)
		if !ok {
			return bad()
		}
		if f.numbers[i], err = strconv.ParseInt(value, 10, 64); err != nil {
			return bad()
		}
	}
	var ok bool
	if f.as, ok = cutField(&rest, "as"); !ok {
		return bad()
	}
	f.slots, _ = cutField(&rest, "slots")
	if f.details, ok = strings.CutPrefix(rest, "details="); !ok {
		return bad()
	}
	return f, nil
}

// cutField removes the named field from the beginning of a text and returns its value.
// It returns false if the text begins with another field.
func cutField(text *string, name string) (string, bool) {
	field, rest, _ := strings.Cut(*text, " ")
	value, ok := strings.CutPrefix(field, name+"=")
	if !ok {
		return "", false
	}
	*text = rest
	return value, true
}
