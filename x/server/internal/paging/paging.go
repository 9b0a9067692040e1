// Package paging splits the holders and waiters of a semaphore into pages, for the API and
// the dashboard.
package paging

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// Cut returns up to limit holders, then waiters, after a cursor. next is the cursor of the
// next page, "" after the last one. ok is false if after is not a cursor.
func Cut(s protocol.Snapshot, after string, limit int) (held []protocol.LeaseInfo, queued []protocol.TicketInfo, next string, ok bool) {
	leases, queue, ok := rest(s, after)
	if !ok {
		return nil, nil, "", false
	}
	held = leases[:min(limit, len(leases))]
	queued = queue[:min(limit-len(held), len(queue))]
	switch {
	case len(held) < len(leases) || len(held) == limit && len(queue) > 0:
		next = AfterHolder(held[len(held)-1])
	case len(queued) < len(queue):
		next = AfterWaiter(queued[len(queued)-1])
	}
	return held, queued, next, true
}

// AfterHolder returns the cursor of the page that follows a holder.
func AfterHolder(l protocol.LeaseInfo) string { return fmt.Sprintf("h%d", l.Seq) }

// AfterWaiter returns the cursor of the page that follows a waiter.
func AfterWaiter(t protocol.TicketInfo) string { return fmt.Sprintf("w%d.%d", t.Session, t.Ticket) }

// rest returns the holders and waiters after the cursor. If the cursor's waiter has left the
// queue, the page starts at the head of the queue: entries may repeat, but none is skipped.
func rest(s protocol.Snapshot, after string) (leases []protocol.LeaseInfo, queue []protocol.TicketInfo, ok bool) {
	leases, queue = s.Leases, s.Queue
	switch {
	case after == "":
	case after[0] == 'h':
		seq, err := strconv.ParseUint(after[1:], 10, 64)
		if err != nil {
			return nil, nil, false
		}
		for len(leases) > 0 && uint64(leases[0].Seq) <= seq {
			leases = leases[1:]
		}
	case after[0] == 'w':
		session, ticket, _ := strings.Cut(after[1:], ".")
		of, err := strconv.ParseUint(session, 10, 64)
		number, worse := strconv.ParseUint(ticket, 10, 64)
		if err != nil || worse != nil {
			return nil, nil, false
		}
		leases = nil
		for i, t := range queue {
			if uint64(t.Session) == of && uint64(t.Ticket) == number {
				return nil, queue[i+1:], true
			}
		}
	default:
		return nil, nil, false
	}
	return leases, queue, true
}
