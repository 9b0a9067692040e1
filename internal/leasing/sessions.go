package leasing

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
)

const (
	storeTimeout = 5 * time.Second // for a store that does not respond
	idleFor      = 2 * time.Second // a session is kept for the next request
	releasedFor  = time.Minute     // a release is remembered

	maxReleased = 100_000 // releases at most; repeating another one fails as if the lease was lost
)

// obtain returns a session for a request: an idle one, or a new one.
func (m *Manager) obtain(ctx context.Context, r Request) (*session, error) {
	m.mu.Lock()
	in := idleKey{r.Semaphore, r.Principal}
	some := m.idle[in]
	if n := len(some); n > 0 {
		one := some[n-1]
		m.idle[in] = some[:n-1]
		m.mu.Unlock()
		return one, nil
	}
	m.mu.Unlock()
	var session protocol.Session
	var config protocol.Config
	owner := protocol.Owner{Key: protocol.NewKey(), Principal: r.Principal}
	err := m.retry(ctx, "acquire", r.Semaphore, func(ctx context.Context) (err error) {
		session, config, err = m.open(ctx, r, owner)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m.newSession(r.Semaphore, session, owner, config), nil
}

// open opens a session. A request without a configuration requires that the semaphore
// exists.
func (m *Manager) open(ctx context.Context, r Request, owner protocol.Owner) (protocol.Session, protocol.Config, error) {
	mustBeThere := r.Config == (protocol.Config{})
	if mustBeThere {
		r.Config.Protocol = protocol.Version
	}
	session, config, err := m.store.Open(ctx, r.Semaphore, r.Config, protocol.Opener{Client: m.self, Owner: owner, MustExist: mustBeThere})
	switch {
	case err == nil:
		return session, config, nil
	case mustBeThere && errors.Is(err, fs.ErrNotExist):
		return 0, config, final{&sema.Error{Op: "acquire", Name: r.Semaphore, Err: missing{}, Detail: "give a capacity to create it"}}
	case errors.Is(err, protocol.ErrVersion) || errors.Is(err, sema.ErrInvalid):
		return 0, config, final{err}
	}
	return 0, config, err
}

// missing is [fs.ErrNotExist] of a semaphore.
type missing struct{}

func (missing) Error() string { return "there is no such semaphore" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// dropIdle forgets the idle sessions of a semaphore of which one was lost: the others were
// lost, too, or will be.
func (m *Manager) dropIdle(in idleKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.idle, in)
}

// keepIdle keeps a session without a lease for the next request.
func (m *Manager) keepIdle(one *session) {
	if one.foreign {
		return // it expires by itself
	}
	if m.keyInID { // the bearer of the ID could use the session again
		m.end(one)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	one.lease, one.idleSince = 0, time.Now()
	in := idleKey{one.semaphore, one.owner.Principal}
	m.idle[in] = append(m.idle[in], one)
}

// find returns the session that has a lease. If it is not known here, another manager has
// granted the lease, or this process before a restart; then the store is inspected.
func (m *Manager) find(ctx context.Context, principal string, h leaseID) (*session, error) {
	if one := m.sessionOf(h); one != nil && one.owner.Principal == principal {
		return one, nil
	}
	snapshot, err := m.inspect(ctx, h.semaphore)
	if err != nil {
		return nil, err
	}
	i, owner := h.in(snapshot)
	if i < 0 || owner.Principal != principal && !m.keyInID { // clients do not know their own
		return nil, &sema.Error{Op: "hold", Name: h.semaphore, Capacity: snapshot.Config.Capacity, InUse: snapshot.InUse, Err: sema.ErrLost, Detail: "it was released, revoked, or not renewed in time"}
	}
	return m.adopt(h, owner, snapshot, i), nil
}

// adopt makes this manager use the session of a lease in a snapshot.
func (m *Manager) adopt(h leaseID, owner protocol.Owner, s protocol.Snapshot, i int) *session {
	l := s.Leases[i]
	one := m.newSession(h.semaphore, l.Session, owner, s.Config)
	one.keyInID = strings.HasPrefix(h.proof, keyMark)
	one.foreign, one.shared = true, true
	one.lease, one.weight, one.fence = l.Seq, l.Weight, fenceOf(s.Leases, i)
	return m.remember(one)
}

// fenceOf returns the fence that a grant would have had.
func fenceOf(leases []protocol.LeaseInfo, i int) protocol.Fence {
	f := protocol.Fence{Seq: leases[i].Seq, Floor: leases[0].Seq, Exact: len(leases) <= protocol.MaxFenced}
	for k := 1; k <= i && f.Exact; k++ {
		if from, to := leases[k-1].Seq+1, leases[k].Seq-1; from <= to {
			f.Revoked = append(f.Revoked, protocol.Range{From: from, To: to})
		}
	}
	return f
}

// remember makes a session known by its lease. It returns the one that is known already, if
// there is one.
func (m *Manager) remember(one *session) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.leased[one.leaseID()]; known != nil {
		return known
	}
	m.leased[one.leaseID()] = one
	return one
}

func (m *Manager) sessionOf(h leaseID) *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leased[h]
}

// forget removes a lease that has ended.
func (m *Manager) forget(h leaseID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leased, h)
}

func (m *Manager) noteReleased(h leaseID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leased, h)
	if len(m.released) < maxReleased {
		m.released[h] = time.Now()
	}
}

func (m *Manager) wasReleased(h leaseID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, was := m.released[h]
	return was
}

// expire removes what has expired, until the manager is closed.
func (m *Manager) expire() {
	for {
		select {
		case <-m.life.Done():
			return
		case <-time.After(time.Second):
		}
		for _, one := range m.expired(time.Now()) {
			m.end(one)
		}
	}
}

// expired removes what is too old, and returns the idle sessions to end.
func (m *Manager) expired(now time.Time) (ended []*session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for in, some := range m.idle {
		old := 0
		for old < len(some) && now.Sub(some[old].idleSince) > idleFor { // the last one is used first
			old++
		}
		ended = append(ended, some[:old]...)
		if m.idle[in] = slices.Delete(some, 0, old); len(m.idle[in]) == 0 {
			delete(m.idle, in)
		}
	}
	for h, at := range m.released {
		if now.Sub(at) > releasedFor {
			delete(m.released, h)
		}
	}
	for h, one := range m.leased {
		late := now.Sub(*one.until.Load())
		if late > one.ttl/3 && !one.expired {
			one.expired = true
			m.pollLocked(one.semaphore, one.ttl)
		}
		if late > one.ttl {
			delete(m.leased, h)
		}
	}
	return ended
}

func (m *Manager) end(one *session) {
	ctx, cancel := context.WithTimeout(m.life, storeTimeout)
	defer cancel()
	one.seq++
	_, _ = m.store.Apply(ctx, one.semaphore, protocol.Batch{Session: one.number, Owner: one.owner, Seq: one.seq, Ack: one.ack, End: true}) // or it expires
}
