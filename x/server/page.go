package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// maxPage is how many semaphores, leases or waiters one reply has at most. The rest
// is on further pages.
const maxPage = 1000

// A page is a part of a list.
type page struct {
	limit int
	after string // the cursor of the page before; "": the first one
}

// pageOf reads ?limit= and ?after= of a request.
func pageOf(query url.Values) (p page, err error) {
	p = page{limit: maxPage, after: query.Get("after")}
	if text := query.Get("limit"); text != "" {
		p.limit, err = strconv.Atoi(text)
	}
	if err != nil || p.limit < 1 || p.limit > maxPage {
		return p, invalid("limit=%q: want 1 to %d; the reply says how to get the rest (next)", query.Get("limit"), maxPage)
	}
	return p, nil
}

// listPage answers with the semaphores that the caller may see, without their
// holders, in the order of their names.
func (s *Server) listPage(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	p, err := pageOf(query)
	if err != nil {
		return err
	}
	found, err := guarded{s}.List(r.Context(), protocol.ListQuery{Prefix: query.Get("prefix"), After: p.after, Limit: p.limit})
	if err != nil {
		return err
	}
	reply := struct {
		Semaphores []summaryText `json:"semaphores"`
		Next       string        `json:"next,omitempty"` // the cursor of the next page, if there is one
	}{Semaphores: []summaryText{}}
	for _, one := range found {
		reply.Semaphores = append(reply.Semaphores, summarize(one))
	}
	if len(found) == p.limit {
		reply.Next = found[p.limit-1].Name
	}
	return answer(w, http.StatusOK, reply)
}

// inspectPage answers with a semaphore, and a page of its leases and waiters.
func (s *Server) inspectPage(w http.ResponseWriter, r *http.Request) error {
	p, err := pageOf(r.URL.Query())
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	snapshot, err := s.client.Inspect(r.Context(), name)
	if err != nil {
		return err
	}
	part, next, err := p.cut(snapshot)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(part.Config.Version))
	limits(w, name, part.Effective, part.InUse, time.Duration(span(part.Config.Window)))
	return answer(w, http.StatusOK, newSemaphorePage(name, part, len(snapshot.Queue), next))
}

// A semaphorePage is a semaphore with some of its leases and waiters.
type semaphorePage struct {
	semaphoreText
	Next string `json:"next,omitempty"` // the cursor of the next page, if there is one
}

func newSemaphorePage(name string, part protocol.Snapshot, waiters int, next string) semaphorePage {
	text := describe(name, part)
	text.Waiting = waiters // all of them
	return semaphorePage{text, next}
}

// firstPage describes a semaphore with its first leases and waiters.
func firstPage(name string, s protocol.Snapshot) semaphorePage {
	part, next, _ := page{limit: maxPage}.cut(s)
	return newSemaphorePage(name, part, len(s.Queue), next)
}

// cut returns a snapshot with some of its leases, and then of its waiters, and the
// cursor for the rest: "l" and the last lease, or "w" and the last waiter.
func (p page) cut(s protocol.Snapshot) (part protocol.Snapshot, next string, err error) {
	leases, line, err := p.rest(s)
	if err != nil {
		return part, "", err
	}
	part = s
	part.Leases = leases[:min(p.limit, len(leases))]
	room := p.limit - len(part.Leases)
	part.Queue = line[:min(room, len(line))]
	switch {
	case len(part.Leases) < len(leases) || len(part.Leases) == p.limit && len(line) > 0:
		next = fmt.Sprintf("l%d", part.Leases[len(part.Leases)-1].Seq)
	case len(part.Queue) < len(line):
		last := part.Queue[len(part.Queue)-1]
		next = fmt.Sprintf("w%d.%d", last.Session, last.Ticket)
	}
	return part, next, nil
}

// rest returns what follows the cursor. If its waiter is not in the queue any more,
// the page starts at the head of the queue: some may be seen twice, none is left out.
func (p page) rest(s protocol.Snapshot) ([]protocol.LeaseInfo, []protocol.TicketInfo, error) {
	leases, line := s.Leases, s.Queue
	bad := invalid("after=%q: want the next of the page before", p.after)
	switch {
	case p.after == "":
	case p.after[0] == 'l':
		seq, err := strconv.ParseUint(p.after[1:], 10, 64)
		if err != nil {
			return nil, nil, bad
		}
		for len(leases) > 0 && uint64(leases[0].Seq) <= seq {
			leases = leases[1:]
		}
	case p.after[0] == 'w':
		session, ticket, _ := strings.Cut(p.after[1:], ".")
		of, err := strconv.ParseUint(session, 10, 64)
		number, worse := strconv.ParseUint(ticket, 10, 64)
		if err != nil || worse != nil {
			return nil, nil, bad
		}
		leases = nil
		for i, t := range line {
			if uint64(t.Session) == of && uint64(t.Ticket) == number {
				line = line[i+1:]
				break
			}
		}
	default:
		return nil, nil, bad
	}
	return leases, line, nil
}

// rpcPage returns how many entries a page has for a request over RPC.
func rpcPage(size uint32) int {
	if size == 0 || size > maxPage {
		return maxPage
	}
	return int(size)
}

// inspectPageMessage returns a semaphore, and a page of its leases and waiters.
func inspectPageMessage(name string, s protocol.Snapshot, p page) (*semav1.InspectResponse, error) {
	part, next, err := p.cut(s)
	if err != nil {
		return nil, err
	}
	message := inspectMessage(name, part)
	message.Semaphore.Waiters, message.Next = int64(len(s.Queue)), next
	return message, nil
}

func firstPageMessage(name string, s protocol.Snapshot) *semav1.InspectResponse {
	message, _ := inspectPageMessage(name, s, page{limit: maxPage})
	return message
}
