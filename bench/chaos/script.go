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

// A scriptGate is what a careful script does with the service's JSON: it asks any of
// the servers, says the same again when an answer is lost, renews, and believes in
// its lease only for as long as it was told.
type scriptGate struct {
	assignment
	servers []string
	client  *http.Client
	bye     sync.WaitGroup // releases that are under way

	mu   sync.Mutex
	turn int // which server is asked
}

func newScriptGate(a assignment) *scriptGate {
	return &scriptGate{assignment: a, servers: strings.Split(a.API, ","), client: &http.Client{Timeout: a.TTL + scriptWait}}
}

// scriptWait is for how long one request waits in line.
const scriptWait = 5 * time.Second

// A told lease is one as the service tells it.
type told struct {
	ID       string
	ValidFor float64 `json:"valid_for"` // seconds
	Fence    struct {
		Seq, Floor protocol.Seq
		Revoked    [][2]protocol.Seq
		Exact      bool
	}
}

// Acquire is for [sema.Gate].
func (g *scriptGate) Acquire(ctx context.Context, n int64) (sema.Permit, error) {
	key := fmt.Sprintf("%p-%d", g, time.Now().UnixNano())
	query := fmt.Sprintf("?weight=%d&wait=%v&capacity=%d&ttl=%v", n, scriptWait, g.Capacity, g.TTL)
	for {
		lease, status, err := g.ask(ctx, http.MethodPost, query, key)
		switch {
		case ctx.Err() != nil:
			return sema.Permit{}, context.Cause(ctx)
		case err != nil || status == http.StatusServiceUnavailable || status == http.StatusGone:
			g.next()
			continue
		case status == http.StatusTooManyRequests: // it has waited, and goes on
			continue
		case status != http.StatusCreated:
			return sema.Permit{}, fmt.Errorf("acquire: status %d", status)
		}
		l := &scriptLease{gate: g, id: lease.ID, fence: lease.fence(), gone: make(chan struct{}), over: make(chan struct{})}
		if !l.renew() { // how old the answer is, after a wait, is not known
			continue
		}
		go l.keep()
		return sema.NewPermit(n, l), nil
	}
}

// TryAcquire is for [sema.Gate].
func (g *scriptGate) TryAcquire(context.Context, int64) (sema.Permit, error) {
	return sema.Permit{}, errors.ErrUnsupported
}

func (l told) fence() protocol.Fence {
	f := protocol.Fence{Seq: l.Fence.Seq, Floor: l.Fence.Floor, Exact: l.Fence.Exact}
	for _, r := range l.Fence.Revoked {
		f.Revoked = append(f.Revoked, protocol.Range{From: r[0], To: r[1]})
	}
	return f
}

func (g *scriptGate) ask(ctx context.Context, method, path, key string) (lease told, status int, err error) {
	g.mu.Lock()
	at := g.servers[g.turn%len(g.servers)]
	g.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+at+"/v1/semaphores/"+semaphoreName+"/leases"+path, nil)
	if err != nil {
		return told{}, 0, err
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := g.client.Do(request)
	if err != nil {
		return told{}, 0, err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode < 300 && len(raw) > 0 {
		err = json.Unmarshal(raw, &lease)
	}
	return lease, response.StatusCode, err
}

// next has another server be asked.
func (g *scriptGate) next() {
	g.mu.Lock()
	g.turn++
	g.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
}

// A scriptLease is one that is renewed until it is released, or lost.
type scriptLease struct {
	gate  *scriptGate
	id    string
	fence protocol.Fence
	gone  chan struct{} // closed when it is lost
	over  chan struct{} // closed when it is released

	mu    sync.Mutex
	until time.Time
}

// Lost is for [sema.Permit].
func (l *scriptLease) Lost() <-chan struct{} { return l.gone }

// Err is for [sema.Permit].
func (l *scriptLease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.gone:
		return sema.ErrLost
	default:
	}
	if time.Now().After(l.until) {
		close(l.gone) // for good: what comes later does not count
		return sema.ErrLost
	}
	return nil
}

// Release is for [sema.Lease]. What cannot be said ends by itself.
func (l *scriptLease) Release() {
	close(l.over)
	l.gate.bye.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.gate.TTL)
		defer cancel()
		for ctx.Err() == nil {
			if _, _, err := l.gate.ask(ctx, http.MethodDelete, "/"+l.id, ""); err == nil {
				return
			}
			l.gate.next()
		}
	})
}

// renew reports whether the lease is held.
func (l *scriptLease) renew() bool {
	ctx, cancel := context.WithTimeout(context.Background(), l.gate.TTL/3)
	defer cancel()
	sent := time.Now()
	lease, status, err := l.gate.ask(ctx, http.MethodPut, "/"+l.id, "")
	if err != nil || status != http.StatusOK {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.until = sent.Add(time.Duration(lease.ValidFor * float64(time.Second)))
	return true
}

func (l *scriptLease) keep() {
	for l.Err() == nil {
		select {
		case <-l.over:
			return
		case <-time.After(l.gate.TTL / 4):
		}
		if !l.renew() {
			l.gate.next()
		}
	}
}
