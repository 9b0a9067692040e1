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
	idleFor      = 2 * time.Second // time for which an unused session is kept for the next request
	releasedFor  = time.Minute     // time for which a release is remembered

	maxReleased = 100_000 // bound of remembered releases; repeating another one fails as if the lease was lost
)

// obtain returns a session for a request: an idle one, or a new one.
func (m *Manager) obtain(ctx context.Context, r Request) (*session, error) {
	m.mu.Lock()
	key := idleKey{r.Semaphore, r.Principal}
	idle := m.idle[key]
	if n := len(idle); n > 0 {
		sess := idle[n-1]
		m.idle[key] = idle[:n-1]
		m.mu.Unlock()
		return sess, nil
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

// open opens a session. The semaphore must exist if the request has no configuration.
func (m *Manager) open(ctx context.Context, r Request, owner protocol.Owner) (protocol.Session, protocol.Config, error) {
	mustExist := r.Config == (protocol.Config{})
	if mustExist {
		r.Config.Protocol = protocol.Version
	}
	session, config, err := m.store.Open(ctx, r.Semaphore, r.Config, protocol.Opener{Client: m.self, Owner: owner, MustExist: mustExist})
	switch {
	case err == nil:
		return session, config, nil
	case mustExist && errors.Is(err, fs.ErrNotExist):
		return 0, config, final{&sema.Error{Op: "acquire", Name: r.Semaphore, Err: missing{}, Detail: "set a capacity to create it"}}
	case errors.Is(err, protocol.ErrVersion) || errors.Is(err, sema.ErrInvalid):
		return 0, config, final{err}
	}
	return 0, config, err
}

// missing is the [fs.ErrNotExist] of a semaphore.
type missing struct{}

func (missing) Error() string { return "there is no such semaphore" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// dropIdle removes idle sessions of a semaphore after one was lost: the others were lost, too,
// or will be.
func (m *Manager) dropIdle(key idleKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.idle, key)
}

// keepIdle keeps a session without a lease for the next request.
func (m *Manager) keepIdle(sess *session) {
	if sess.foreign {
		return // it expires by itself
	}
	if m.keyInID { // the bearer of the ID could use the session again
		m.end(sess)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sess.lease, sess.idleSince = 0, time.Now()
	key := idleKey{sess.semaphore, sess.owner.Principal}
	m.idle[key] = append(m.idle[key], sess)
}

// find returns the session of a lease. If this manager does not have it, another manager has
// granted the lease, or this process did before a restart; then find inspects the store.
func (m *Manager) find(ctx context.Context, principal string, h leaseID) (*session, error) {
	if sess := m.sessionOf(h); sess != nil && sess.owner.Principal == principal {
		return sess, nil
	}
	snapshot, err := m.inspect(ctx, h.semaphore)
	if err != nil {
		return nil, err
	}
	i, owner := h.find(snapshot)
	if i < 0 || owner.Principal != principal && !m.keyInID { // clients do not know their own principal
		return nil, &sema.Error{Op: "hold", Name: h.semaphore, Capacity: snapshot.Config.Capacity, InUse: snapshot.InUse, Err: sema.ErrLost, Detail: "it was released, revoked, or not renewed in time"}
	}
	return m.adopt(h, owner, snapshot, i), nil
}

// adopt starts to use the session of a lease in a snapshot.
func (m *Manager) adopt(h leaseID, owner protocol.Owner, s protocol.Snapshot, i int) *session {
	l := s.Leases[i]
	sess := m.newSession(h.semaphore, l.Session, owner, s.Config)
	sess.keyInID = strings.HasPrefix(h.proof, keyMark)
	sess.foreign, sess.shared = true, true
	sess.lease, sess.weight, sess.slots, sess.fence = l.Seq, l.Weight, l.Slots, fenceOf(s.Leases, i)
	return m.remember(sess)
}

// fenceOf returns the fence that a grant of the lease would contain now.
func fenceOf(leases []protocol.LeaseInfo, i int) protocol.Fence {
	f := protocol.Fence{Seq: leases[i].Seq, Floor: leases[0].Seq, Exact: len(leases) <= protocol.MaxFenced}
	for k := 1; k <= i && f.Exact; k++ {
		if from, to := leases[k-1].Seq+1, leases[k].Seq-1; from <= to {
			f.Revoked = append(f.Revoked, protocol.Range{From: from, To: to})
		}
	}
	return f
}

// remember registers a session by its lease. It returns the session that is already
// registered, if any.
func (m *Manager) remember(sess *session) *session {
	id := sess.leaseID()
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.leased[id]; known != nil {
		return known
	}
	m.leased[id] = sess
	return sess
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

// expire removes expired entries every second, until the manager is closed.
func (m *Manager) expire() {
	for {
		select {
		case <-m.life.Done():
			return
		case <-time.After(time.Second):
		}
		for _, sess := range m.removeExpired(time.Now()) {
			m.end(sess)
		}
	}
}

// removeExpired removes expired entries, and returns the idle sessions to end.
func (m *Manager) removeExpired(now time.Time) (ended []*session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, idle := range m.idle {
		old := 0
		for old < len(idle) && now.Sub(idle[old].idleSince) > idleFor { // sessions are reused from the end
			old++
		}
		ended = append(ended, idle[:old]...)
		if m.idle[key] = slices.Delete(idle, 0, old); len(m.idle[key]) == 0 {
			delete(m.idle, key)
		}
	}
	for h, at := range m.released {
		if now.Sub(at) > releasedFor {
			delete(m.released, h)
		}
	}
	for h, sess := range m.leased {
		late := now.Sub(*sess.until.Load())
		if late > sess.ttl/3 && !sess.expired {
			sess.expired = true
			m.pollLocked(sess.semaphore, sess.ttl)
		}
		if late > sess.ttl {
			delete(m.leased, h)
		}
	}
	return ended
}

func (m *Manager) end(sess *session) {
	ctx, cancel := context.WithTimeout(m.life, storeTimeout)
	defer cancel()
	sess.seq++
	_, _ = m.store.Apply(ctx, sess.semaphore, protocol.Batch{Session: sess.number, Owner: sess.owner, Seq: sess.seq, Ack: sess.ack, End: true}) // if it fails, the session expires
}
