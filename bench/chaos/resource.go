//go:build unix

package main

import (
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/storetest"
)

// A resource is protected by the permits. Workers write to it, and it checks
// their fences. It records everything that workers report.
type resource struct {
	socket string

	mu             sync.Mutex
	guard          fleet.Guard
	pending        map[*usage]bool // not ended yet
	finished       []*usage        // ended
	failed         map[string]int  // number of failed acquires by error
	rejectedWrites int             // writes that the guard rejected
}

// A usage describes one permit, from the request to its end.
type usage struct {
	weight               int64
	seq                  protocol.Seq // 0 if it is part of a block
	requestedAt, granted time.Time
	firstWrite           time.Time // admitted by the guard
	lastWrite            time.Time
	confirmedAt          time.Time // last time at which the holder's own check found the permit held
	releasing            time.Time
	ended                time.Time
	end                  kind
}

// processEnded is the end of a usage whose process ended.
const processEnded kind = "ended"

func newResource(s *storetest.Scope) *resource {
	r := &resource{socket: filepath.Join(storetest.Directory(s, ""), "resource"), pending: map[*usage]bool{}, failed: map[string]int{}}
	listener, err := net.Listen("unix", r.socket)
	if err != nil {
		s.Fatalf("%v", err)
	}
	s.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.serve(conn)
		}
	}()
	return r
}

// serve handles the messages of one caller until its connection is closed,
// which is at the end of its process at the latest.
func (r *resource) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	u := &usage{}
	for {
		var m message
		if in.Decode(&m) != nil {
			r.record(u, message{Kind: processEnded, At: time.Now()})
			return
		}
		var admitted bool
		u, admitted = r.record(u, m)
		if out.Encode(admitted) != nil {
			r.record(u, message{Kind: processEnded, At: time.Now()})
			return
		}
	}
}

// record records a message about a usage and returns the usage that the next
// message is about.
func (r *resource) record(u *usage, m message) (next *usage, admitted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Kind {
	case requested:
		u = &usage{weight: m.Weight, requestedAt: m.At}
		r.pending[u] = true
	case granted:
		u.granted, u.confirmedAt, u.seq = m.At, m.At, m.Fence.Seq
	case writes:
		u.confirmedAt = later(u.confirmedAt, m.Confirmed)
		if admitted = r.guard.Admit(m.Fence) == nil; !admitted {
			r.rejectedWrites++
			break
		}
		// The resource's own clock counts: a caller may have been paused since it
		// wrote.
		u.lastWrite = time.Now()
		if u.firstWrite.IsZero() {
			u.firstWrite = u.lastWrite
		}
	case failed:
		r.failed[m.Err]++
		fallthrough
	default:
		if r.pending[u] {
			delete(r.pending, u)
			u.end, u.releasing, u.ended = m.Kind, m.From, m.At
			r.finished = append(r.finished, u)
		}
	}
	return u, admitted
}

// waitingSince returns the number of requests that have been waiting since
// then.
func (r *resource) waitingSince(then time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.pending {
		if u.granted.IsZero() && u.requestedAt.Before(then) {
			n++
		}
	}
	return n
}

// usages returns all ended usages in the order of their requests.
func (r *resource) usages() []*usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.finished)
	slices.SortFunc(all, func(a, b *usage) int { return a.requestedAt.Compare(b.requestedAt) })
	return all
}
