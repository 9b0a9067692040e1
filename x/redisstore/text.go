package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// Leases, tickets and sessions are in sorted sets as text, for people who look
// with redis-cli:
//
//	1763201234567891 session=1763201234567880 weight=1 since=1763201234569000 as=permit meta=web-1 [4711] main.go:44
//	17 session=1763201234567881 weight=2 least=2 until=0 as=permit meta=web-2 [815] main.go:44
//	1763201234567880 web-1/4711
//
// Meta comes last, since it may be anything.

func parseLease(member string) (protocol.LeaseInfo, error) {
	f, err := parseMember(member, "session", "weight", "since", "as")
	return protocol.LeaseInfo{
		Seq: protocol.Seq(f.name), Session: protocol.Session(f.numbers[0]), Weight: f.numbers[1], Since: protocol.Micros(f.numbers[2]),
		Pooled: f.is("block"), Revoked: f.is("revoked"), Meta: f.meta,
	}, err
}

func parseTicket(member string) (protocol.TicketInfo, error) {
	f, err := parseMember(member, "session", "weight", "least", "until", "as")
	return protocol.TicketInfo{Ticket: protocol.Ticket(f.name), Session: protocol.Session(f.numbers[0]), Weight: f.numbers[1], Meta: f.meta}, err
}

func parseSession(member string) (protocol.SessionInfo, error) {
	number, instance, ok := strings.Cut(member, " ")
	id, err := strconv.ParseUint(number, 10, 64)
	if err != nil || !ok {
		return protocol.SessionInfo{}, fmt.Errorf("%q: want the number of a session and its instance", member)
	}
	return protocol.SessionInfo{Session: protocol.Session(id), Instance: instance}, nil
}

// fields are what a member says.
type fields struct {
	name    uint64
	numbers [4]int64
	as      string
	meta    string
}

func (f fields) is(what string) bool {
	for as := range strings.SplitSeq(f.as, ",") {
		if as == what {
			return true
		}
	}
	return false
}

// parseMember reads a number, then fields with these names, of which the last is
// no number, then meta.
func parseMember(member string, names ...string) (f fields, err error) {
	bad := func() (fields, error) {
		return fields{}, fmt.Errorf("%q: want a number, %s= and meta=", member, strings.Join(names, "=, "))
	}
	number, rest, _ := strings.Cut(member, " ")
	if f.name, err = strconv.ParseUint(number, 10, 64); err != nil {
		return bad()
	}
	for i, name := range names {
		var field string
		field, rest, _ = strings.Cut(rest, " ")
		value, ok := strings.CutPrefix(field, name+"=")
		if !ok {
			return bad()
		}
		if i == len(names)-1 {
			f.as = value
		} else if f.numbers[i], err = strconv.ParseInt(value, 10, 64); err != nil {
			return bad()
		}
	}
	meta, ok := strings.CutPrefix(rest, "meta=")
	if !ok {
		return bad()
	}
	f.meta = meta
	return f, nil
}
