//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

// A scriptGate uses the service's JSON API as a careful script does. It sends
// requests to any of the servers. When a reply is lost, it repeats the request
// with the same idempotency key. It renews its lease, and relies on it only for
// the time that the reply states.
type scriptGate struct {
	assignment
	servers  []string
	client   *http.Client
	releases sync.WaitGroup // releases in flight

	mu   sync.Mutex
	turn int // index of the server in use, modulo their number
}

func newScriptGate(a assignment) *scriptGate {
	return &scriptGate{assignment: a, servers: strings.Split(a.API, ","), client: &http.Client{Timeout: a.TTL + scriptWait}}
}

// scriptWait bounds the time that one request waits in the queue.
const scriptWait = 5 * time.Second

// A leaseReply is a lease in the service's JSON format.
type leaseReply struct {
	ID       string
	ValidFor float64 `json:"valid_for"` // seconds
	Fence    struct {
		Seq, Floor protocol.Seq
		Revoked    [][2]protocol.Seq
		Exact      bool
	}
}

// Acquire implements [sema.Gate].
func (g *scriptGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	key := fmt.Sprintf("%p-%d", g, time.Now().UnixNano())
	query := fmt.Sprintf("?weight=%d&wait=%v&capacity=%d&ttl=%v", n, scriptWait, g.Capacity, g.TTL)
	for {
		lease, status, err := g.send(ctx, http.MethodPost, query, key)
		switch {
		case ctx.Err() != nil:
			return sema.Permit{}, context.Cause(ctx)
		case err != nil || status == http.StatusServiceUnavailable || status == http.StatusGone:
			g.next()
			continue
		case status == http.StatusTooManyRequests: // the wait ended without a permit: queue again
			continue
		case status != http.StatusCreated:
			return sema.Permit{}, fmt.Errorf("acquire: status %d", status)
		}
		l := &scriptLease{gate: g, id: lease.ID, fence: lease.fence(), lost: make(chan struct{}), released: make(chan struct{})}
		if !l.renew() { // the request waited in the queue, so the age of its reply is unknown
			continue
		}
		go l.renewLoop()
		return sema.NewPermit(n, l), nil
	}
}

// TryAcquire implements [sema.Gate].
func (g *scriptGate) TryAcquire(context.Context, int64) (sema.Permit, error) {
	return sema.Permit{}, errors.ErrUnsupported
}

func (l leaseReply) fence() protocol.Fence {
	f := protocol.Fence{Seq: l.Fence.Seq, Floor: l.Fence.Floor, Exact: l.Fence.Exact}
	for _, r := range l.Fence.Revoked {
		f.Revoked = append(f.Revoked, protocol.Range{From: r[0], To: r[1]})
	}
	return f
}

func (g *scriptGate) send(ctx context.Context, method, path, key string) (lease leaseReply, status int, err error) {
	g.mu.Lock()
	at := g.servers[g.turn%len(g.servers)]
	g.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+at+"/v1/semaphores/"+semaphoreName+"/leases"+path, nil)
	if err != nil {
		return leaseReply{}, 0, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := g.client.Do(request)
	if err != nil {
		return leaseReply{}, 0, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode < 300 && len(raw) > 0 {
		err = json.Unmarshal(raw, &lease)
	}
	return lease, response.StatusCode, err
}

// next switches to another server.
func (g *scriptGate) next() {
	g.mu.Lock()
	g.turn++
	g.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
}

// A scriptLease is renewed until it is released or lost.
type scriptLease struct {
	gate     *scriptGate
	id       string
	fence    protocol.Fence
	lost     chan struct{} // closed when the lease is lost
	released chan struct{} // closed when the lease is released

	mu    sync.Mutex
	until time.Time
}

// Lost implements the interface of [sema.Permit].
func (l *scriptLease) Lost() <-chan struct{} { return l.lost }

// Err implements the interface of [sema.Permit].
func (l *scriptLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.lost:
		return sema.ErrLost
	default:
	}
	if time.Now().After(l.until) {
		close(l.lost) // permanently: a later renewal does not count
		return sema.ErrLost
	}
	return nil
}

// Release implements [sema.Lease]. A lease whose release cannot be sent
// expires.
func (l *scriptLease) Release() {
	close(l.released)
	l.gate.releases.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.gate.TTL)
		defer cancel()
		for ctx.Err() == nil {
			if _, _, err := l.gate.send(ctx, http.MethodDelete, "/"+l.id, ""); err == nil {
				return
			}
			l.gate.next()
		}
	})
}

// renew renews the lease and reports whether it is held.
func (l *scriptLease) renew() bool {
	ctx, cancel := context.WithTimeout(context.Background(), l.gate.TTL/3)
	defer cancel()
	sent := time.Now()
	lease, status, err := l.gate.send(ctx, http.MethodPut, "/"+l.id, "")
	if err != nil || status != http.StatusOK {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = sent.Add(time.Duration(lease.ValidFor * float64(time.Second)))
	return true
}

func (l *scriptLease) renewLoop() {
	for l.Err() == nil {
		select {
		case <-l.released:
			return
		case <-time.After(l.gate.TTL / 4):
		}
		if !l.renew() {
			l.gate.next()
		}
	}
}
