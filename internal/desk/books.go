package desk

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
	patience  = 5 * time.Second // with an engine that does not answer
	idleFor   = 2 * time.Second // a session waits for the next who comes
	remembers = time.Minute     // a release, for those who say it twice

	remembered = 100_000 // releases at most; the others are answered as if the lease was lost
)

// welcome is a session for somebody: one that is idle, or a new one.
func (d *Desk) welcome(ctx context.Context, r Request) (*visit, error) {
	d.mu.Lock()
	in := room{r.Semaphore, r.Principal}
	some := d.idle[in]
	if n := len(some); n > 0 {
		v := some[n-1]
		d.idle[in] = some[:n-1]
		d.mu.Unlock()
		return v, nil
	}
	d.mu.Unlock()
	var session protocol.Session
	var config protocol.Config
	owner := protocol.Owner{Key: protocol.NewKey(), Principal: r.Principal}
	err := d.insist(ctx, "acquire", r.Semaphore, func(ctx context.Context) (err error) {
		session, config, err = d.open(ctx, r, owner)
		return err
	})
	if err != nil {
		return nil, err
	}
	return d.newVisit(r.Semaphore, session, owner, config), nil
}

// open opens a session. A request without a configuration requires that the semaphore
// exists.
func (d *Desk) open(ctx context.Context, r Request, owner protocol.Owner) (protocol.Session, protocol.Config, error) {
	mustBeThere := r.Config == (protocol.Config{})
	if mustBeThere {
		r.Config.Protocol = protocol.Version
	}
	session, config, err := d.store.Open(ctx, r.Semaphore, r.Config, protocol.Opener{Client: d.self, Owner: owner, MustExist: mustBeThere})
	switch {
	case err == nil:
		return session, config, nil
	case mustBeThere && errors.Is(err, fs.ErrNotExist):
		return 0, config, refusal{&sema.Error{Op: "acquire", Name: r.Semaphore, Err: missing{}, Detail: "give a capacity to create it"}}
	case errors.Is(err, protocol.ErrVersion) || errors.Is(err, sema.ErrInvalid):
		return 0, config, refusal{err}
	}
	return 0, config, err
}

// missing is [fs.ErrNotExist] of a semaphore.
type missing struct{}

func (missing) Error() string { return "there is no such semaphore" }
func (missing) Unwrap() error { return fs.ErrNotExist }

// dismiss forgets those that wait for the next who comes, of a semaphore of which one
// has died: the others have, too, or will.
func (d *Desk) dismiss(in room) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.idle, in)
}

// park keeps a session that has nothing for the next who comes.
func (d *Desk) park(v *visit) {
	if v.foreign {
		return // it expires by itself
	}
	if d.keyInID { // the bearer of the id could use the session again
		d.bye(v)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	v.lease, v.parted = 0, time.Now()
	in := room{v.semaphore, v.owner.Principal}
	d.idle[in] = append(d.idle[in], v)
}

// find is the visit that has a lease. If it is not known here, another desk has
// granted it, or this one before it was started again; then the engine is asked.
func (d *Desk) find(ctx context.Context, principal string, h handle) (*visit, error) {
	if v := d.visitOf(h); v != nil && v.owner.Principal == principal {
		return v, nil
	}
	snapshot, err := d.look(ctx, h.semaphore)
	if err != nil {
		return nil, err
	}
	i, owner := h.in(snapshot)
	if i < 0 || owner.Principal != principal && !d.keyInID { // a client does not know its own
		return nil, &sema.Error{Op: "hold", Name: h.semaphore, Capacity: snapshot.Config.Capacity, InUse: snapshot.InUse, Err: sema.ErrLost, Detail: "it was released, taken away, or not renewed in time"}
	}
	return d.adopt(h, owner, snapshot, i), nil
}

// adopt has this desk speak for one of the leases of a snapshot.
func (d *Desk) adopt(h handle, owner protocol.Owner, s protocol.Snapshot, i int) *visit {
	l := s.Leases[i]
	v := d.newVisit(h.semaphore, l.Session, owner, s.Config)
	v.keyInID = strings.HasPrefix(h.proof, keyMark)
	v.foreign, v.shared = true, true
	v.lease, v.weight, v.fence = l.Seq, l.Weight, fenceOf(s.Leases, i)
	return d.remember(v)
}

// fenceOf is what a grant would have been told.
func fenceOf(leases []protocol.LeaseInfo, i int) protocol.Fence {
	f := protocol.Fence{Seq: leases[i].Seq, Floor: leases[0].Seq, Exact: len(leases) <= protocol.MaxFenced}
	for k := 1; k <= i && f.Exact; k++ {
		if from, to := leases[k-1].Seq+1, leases[k].Seq-1; from <= to {
			f.Revoked = append(f.Revoked, protocol.Range{From: from, To: to})
		}
	}
	return f
}

// remember has a visit be found by its lease. If there is one already, that is
// it.
func (d *Desk) remember(v *visit) *visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.visits[v.handle()]; known != nil {
		return known
	}
	d.visits[v.handle()] = v
	return v
}

func (d *Desk) visitOf(h handle) *visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.visits[h]
}

// forget is when a lease is gone.
func (d *Desk) forget(h handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.visits, h)
}

func (d *Desk) noteReleased(h handle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.visits, h)
	if len(d.released) < remembered {
		d.released[h] = time.Now()
	}
}

func (d *Desk) wasReleased(h handle) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was := d.released[h]
	return was
}

// tidy forgets what is of no use any more.
func (d *Desk) tidy() {
	for {
		select {
		case <-d.life.Done():
			return
		case <-time.After(time.Second):
		}
		for _, v := range d.outdated(time.Now()) {
			d.bye(v)
		}
	}
}

// outdated takes out what is too old, and returns the sessions that are to be
// ended.
func (d *Desk) outdated(now time.Time) (ended []*visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for in, some := range d.idle {
		old := 0
		for old < len(some) && now.Sub(some[old].parted) > idleFor { // the last to come is the first to go
			old++
		}
		ended = append(ended, some[:old]...)
		if d.idle[in] = slices.Delete(some, 0, old); len(d.idle[in]) == 0 {
			delete(d.idle, in)
		}
	}
	for h, at := range d.released {
		if now.Sub(at) > remembers {
			delete(d.released, h)
		}
	}
	for h, v := range d.visits {
		late := now.Sub(*v.until.Load())
		if late > v.ttl/3 && !v.expired {
			v.expired = true
			d.pollLocked(v.semaphore, v.ttl)
		}
		if late > v.ttl {
			delete(d.visits, h)
		}
	}
	return ended
}

func (d *Desk) bye(v *visit) {
	ctx, cancel := context.WithTimeout(d.life, patience)
	defer cancel()
	v.seq++
	_, _ = d.store.Apply(ctx, v.semaphore, protocol.Batch{Session: v.session, Owner: v.owner, Seq: v.seq, Ack: v.ack, End: true}) // or it dies by itself
}
