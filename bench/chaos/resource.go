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
	"github.com/sema-go/sema/internal/enginetest"
)

// A resource is what the permits are for. Workers write to it, and it looks at
// their fences. It notes all that they say.
type resource struct {
	socket string

	mu      sync.Mutex
	guard   fleet.Guard
	open    map[*usage]bool // not over yet
	over    []*usage
	refused map[string]int // acquires that failed, by why
	barred  int            // writes that the guard did not admit
}

// A usage is one permit's life, from when it was asked for.
type usage struct {
	weight         int64
	seq            protocol.Seq // 0 if it is part of a block
	asked, granted time.Time
	firstWrite     time.Time // that was admitted
	lastWrite      time.Time
	sure           time.Time // when it was last surely held, by its holder's own look
	releasing      time.Time
	ended          time.Time
	end            kind
}

// died is the end of a usage whose process is gone.
const died kind = "died"

func newResource(s *enginetest.Scope) *resource {
	r := &resource{socket: filepath.Join(enginetest.Directory(s, ""), "resource"), open: map[*usage]bool{}, refused: map[string]int{}}
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

// serve listens to one caller until its line is cut: with its process's end, at
// the latest.
func (r *resource) serve(conn net.Conn) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	u := &usage{}
	for {
		var m message
		if in.Decode(&m) != nil {
			r.hear(u, message{Kind: died, At: time.Now()})
			return
		}
		var admitted bool
		u, admitted = r.hear(u, m)
		if out.Encode(admitted) != nil {
			r.hear(u, message{Kind: died, At: time.Now()})
			return
		}
	}
}

// hear notes what is said of a usage, and returns the one that is next said
// something of.
func (r *resource) hear(u *usage, m message) (next *usage, admitted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Kind {
	case asks:
		u = &usage{weight: m.Weight, asked: m.At}
		r.open[u] = true
	case granted:
		u.granted, u.sure, u.seq = m.At, m.At, m.Fence.Seq
	case writes:
		u.sure = later(u.sure, m.Sure)
		if admitted = r.guard.Admit(m.Fence) == nil; !admitted {
			r.barred++
			break
		}
		// By the resource's own clock: a caller may have been paused since it wrote.
		u.lastWrite = time.Now()
		if u.firstWrite.IsZero() {
			u.firstWrite = u.lastWrite
		}
	case refused:
		r.refused[m.Err]++
		fallthrough
	default:
		if r.open[u] {
			delete(r.open, u)
			u.end, u.releasing, u.ended = m.Kind, m.From, m.At
			r.over = append(r.over, u)
		}
	}
	return u, admitted
}

// waitingSince is how many have been waiting since then.
func (r *resource) waitingSince(then time.Time) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.open {
		if u.granted.IsZero() && u.asked.Before(then) {
			n++
		}
	}
	return n
}

// usages are all so far, in the order in which they were asked for.
func (r *resource) usages() []*usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.over)
	slices.SortFunc(all, func(a, b *usage) int { return a.asked.Compare(b.asked) })
	return all
}
