package server

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// maxPage bounds the semaphores, or the holders and waiters, of one reply, and is the
// default. The rest is on further pages.
const maxPage = 1000

// A page is a part of a list. Zero is the first page of the default size.
type page struct {
	limit int    // entries at most; 0: maxPage
	after string // the cursor of the page before; "": the first page
}

// newPage checks the size of a page.
func newPage(limit int64, after string) (page, error) {
	if limit < 0 || limit > maxPage {
		return page{}, invalid("limit: %d: want 1 to %d; the reply says how to get the rest (next)", limit, maxPage)
	}
	return page{int(limit), after}, nil
}

// pageOf reads ?limit= and ?after= of a request.
func pageOf(query url.Values) (page, error) {
	text := query.Get("limit")
	if text == "" {
		return newPage(0, query.Get("after"))
	}
	limit, err := strconv.ParseInt(text, 10, 32)
	if err != nil || limit == 0 {
		return page{}, invalid("limit: %s: want 1 to %d; the reply says how to get the rest (next)", quote(text), maxPage)
	}
	return newPage(limit, query.Get("after"))
}

func (p page) size() int {
	if p.limit == 0 {
		return maxPage
	}
	return p.limit
}

// cut returns some of the holders of a snapshot, and then of its waiters, and the cursor
// for the rest: "h" and the last lease, or "w" and the last waiter.
func (p page) cut(s protocol.Snapshot) (held []protocol.LeaseInfo, queued []protocol.TicketInfo, next string, err error) {
	leases, queue, err := p.rest(s)
	if err != nil {
		return nil, nil, "", err
	}
	held = leases[:min(p.size(), len(leases))]
	queued = queue[:min(p.size()-len(held), len(queue))]
	switch {
	case len(held) < len(leases) || len(held) == p.size() && len(queue) > 0:
		next = fmt.Sprintf("h%d", held[len(held)-1].Seq)
	case len(queued) < len(queue):
		last := queued[len(queued)-1]
		next = fmt.Sprintf("w%d.%d", last.Session, last.Ticket)
	}
	return held, queued, next, nil
}

// rest returns what follows the cursor. If its waiter is not in the queue any more,
// the page starts at the head of the queue: some may be seen twice, none is left out.
func (p page) rest(s protocol.Snapshot) ([]protocol.LeaseInfo, []protocol.TicketInfo, error) {
	leases, queue := s.Leases, s.Queue
	bad := func() error { return invalid("after: %s: want the next of the page before", quote(p.after)) }
	switch {
	case p.after == "":
	case p.after[0] == 'h':
		seq, err := strconv.ParseUint(p.after[1:], 10, 64)
		if err != nil {
			return nil, nil, bad()
		}
		for len(leases) > 0 && uint64(leases[0].Seq) <= seq {
			leases = leases[1:]
		}
	case p.after[0] == 'w':
		session, ticket, _ := strings.Cut(p.after[1:], ".")
		of, err := strconv.ParseUint(session, 10, 64)
		number, worse := strconv.ParseUint(ticket, 10, 64)
		if err != nil || worse != nil {
			return nil, nil, bad()
		}
		leases = nil
		for i, t := range queue {
			if uint64(t.Session) == of && uint64(t.Ticket) == number {
				queue = queue[i+1:]
				break
			}
		}
	default:
		return nil, nil, bad()
	}
	return leases, queue, nil
}
