package server

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
	"github.com/sema-go/sema/x/server/internal/history"
	"github.com/sema-go/sema/x/server/internal/meter"
)

// A service implements every operation of the API once: it authorises, validates, limits,
// counts and audits. JSON (jsonAPI), Connect and gRPC (rpcAPI), the store of Go clients
// (storeAPI) and the dashboard (dashboardAPI) are codecs over it and access the store only
// through it. This file contains the operations on leases; semaphores.go contains those on
// semaphores.
//
// The context of a call contains its caller, see [call].
type service struct {
	options  Options
	log      *slog.Logger
	journal  *journal
	store    *catalog
	manager  *leasing.Manager
	declared declarations
	tokens   atomic.Pointer[tokens]
	accounts *accounts
	leases   *leases
	sessions *sessions
	watches  *watches
	counted  *metrics
	meter    *meter.Meter
	sampler  *sampler
	history  *history.History
	unkept   error // why the directory of the history is not used

	examination examination
	deadlocks   deadlocks
	crossOrigin http.CrossOriginProtection

	waiting, streams atomic.Int64
	outageLogged     atomic.Int64    // when an outage of the store was last logged, in nanoseconds since 1970
	leaving          atomic.Bool     // new acquires and sessions are rejected
	life, watching   context.Context // life ends all calls; watching ends those that only watch
	end, endWatching context.CancelFunc
	work             sync.WaitGroup // upkeep, reap and the sampler
}

func newService(store fleet.Store, o Options) (*service, error) {
	s := &service{options: o, log: o.Logger}
	s.options.Limits = o.Limits.withDefaults()
	if s.log == nil {
		s.log = slog.Default()
	}
	declared, badDeclarations := newDeclarations(o.Declared)
	known, badTokens := newTokens(o.Tokens)
	if err := errors.Join(o.Limits.Check(), badDeclarations, badTokens); err != nil {
		return nil, err
	}
	s.declared = declared
	s.tokens.Store(known)
	s.journal = newJournal(s.log)
	s.deadlocks.turn, s.examination.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	s.accounts, s.leases, s.sessions = newAccounts(s), newLeases(s), newSessions(s)
	s.life, s.end = context.WithCancel(context.Background())
	s.watching, s.endWatching = context.WithCancel(s.life)
	s.meter = meter.New(int(s.options.Limits.Series), s.declared.exactly, s.ownerName)
	for _, d := range s.declared {
		if d.isName() {
			s.meter.Declare(d.name, stateOf(protocol.Summary{Config: d.config, Effective: d.config.Capacity}), time.Now())
		}
	}
	s.counted = newMetrics(s)
	s.store = newCatalog(store, s)
	s.sampler = newSampler(s)
	s.history, s.unkept = s.openHistory()
	s.watches = newWatches(s)
	s.manager = leasing.New(s.store)
	s.work.Go(s.upkeep)
	s.work.Go(s.reap)
	s.work.Go(s.sampler.run)
	return s, nil
}

// close ends waiting calls and streams, and closes the store. Leases stay in the store.
func (s *service) close() error {
	s.end()
	s.work.Wait()
	s.watches.close()
	s.manager.Close()
	return errors.Join(s.history.Close(), s.store.Close())
}

// authorize checks a semaphore's name, and whether the caller may apply a verb to it.
func (s *service) authorize(ctx context.Context, verb Verb, name string) error {
	if err := fleet.CheckName(name); err != nil {
		return err
	}
	return callerOf(ctx).allow(verb, name)
}

// An acquireRequest asks for permits.
type acquireRequest struct {
	semaphore string
	weight    int64
	wait      time.Duration // how long to queue at most; 0: do not queue
	create    settings      // configuration of a semaphore that does not exist and is not declared
	holder    string        // free text from the client, listed with the lease
	key       string        // idempotency key; "": none
}

const (
	// maxTTL bounds the TTL of semaphores that clients create: the permits of a client
	// that has disappeared stay in use for that long.
	maxTTL = time.Hour
	// minTTL is the shortest TTL that stores accept.
	minTTL = 100 * time.Millisecond
	// maxKey bounds the length of an idempotency key, in bytes.
	maxKey = 200
)

// acquire waits for permits in order of arrival and returns a lease. A request that does
// not queue counts as waiting, too: a store may take up to a TTL to reject it.
func (s *service) acquire(ctx context.Context, r acquireRequest) (lease leasing.Lease, err error) {
	request, err := s.validate(ctx, r)
	if err != nil {
		return leasing.Lease{}, err
	}
	asked := false
	defer func() { s.count(r.semaphore, err, asked) }()
	one := s.accountOf(ctx)
	if err := s.enter(one, waiting, &s.waiting); err != nil {
		return leasing.Lease{}, err
	}
	defer s.leave(one, waiting, &s.waiting)
	if err := s.accounts.takeSwept(one, held); err != nil {
		return leasing.Lease{}, err
	}
	client := ctx
	if r.wait > 0 {
		bounded, cancel := withLife(ctx, s.life)
		defer cancel()
		ctx = bounded
	}
	asked = true
	if lease, err = s.manager.Acquire(ctx, request); err != nil || lease.ID == "" {
		if err != nil && r.key != "" && client.Err() != nil {
			s.abandon(one, r)
		} else {
			s.accounts.put(one, held)
		}
		return lease, err
	}
	s.leases.keep(one, lease)
	if r.key != "" {
		s.leases.drop(one, abandonedKey(one, r))
	}
	return lease, nil
}

// count counts an acquire over HTTP or RPC that failed without a result of the store: the meter
// sees the others. asked reports whether the store was asked.
func (s *service) count(semaphore string, err error, asked bool) {
	var fault *sema.Error
	switch {
	case err == nil:
	case !asked:
		s.meter.Rejected(semaphore, meter.Rejected, "limit", s.store.known(semaphore), time.Now())
	case errors.As(err, &fault) && fault.After > 0: // the store has replied that it cannot decide yet
	case errors.Is(err, sema.ErrUnavailable), errors.Is(err, fs.ErrNotExist), errors.Is(err, sema.ErrInvalid):
		s.meter.Rejected(semaphore, meter.Error, "", s.store.known(semaphore), time.Now())
	}
}

// abandon keeps counting a request with an idempotency key after its client has disconnected:
// its ticket stays in the queue, and may be granted, until its session has expired.
func (s *service) abandon(one *account, r acquireRequest) {
	ttl := maxTTL
	if now, err := s.snapshot(s.life, r.semaphore); err == nil {
		ttl = span(now.Config.TTL)
	}
	s.leases.abandon(one, abandonedKey(one, r), time.Now().Add(r.wait+2*ttl))
}

// abandonedKey returns the key under which an abandoned request is counted. It equals no
// lease's key.
func abandonedKey(one *account, r acquireRequest) leaseKey {
	return leaseKey{r.semaphore, "key " + one.principal + "\x00" + r.key}
}

// validate checks whether the caller may make a request, and converts it for the lease
// manager.
func (s *service) validate(ctx context.Context, r acquireRequest) (leasing.Request, error) {
	if err := s.authorize(ctx, Acquire, r.semaphore); err != nil {
		return leasing.Request{}, err
	}
	if s.leaving.Load() {
		return leasing.Request{}, errLeaving
	}
	if limit := s.options.Limits.MaxWait; r.wait > limit {
		return leasing.Request{}, invalid("wait: %v: want %v at most; to wait longer, repeat the request", r.wait, limit)
	}
	if len(r.key) > maxKey {
		return leasing.Request{}, invalid("idempotency key: want %d bytes at most", maxKey)
	}
	config, err := s.creation(r.semaphore, r.create)
	if err != nil {
		return leasing.Request{}, err
	}
	c := callerOf(ctx)
	request := leasing.Request{Semaphore: r.semaphore, Weight: r.weight, Wait: r.wait, Holder: r.holder, Key: r.key, Principal: c.principal, Config: config}
	if c.identity != anonymousIdentity {
		request.By = c.name
	}
	return request, nil
}

// renew extends a lease of the caller by another TTL.
func (s *service) renew(ctx context.Context, semaphore, id string) (leasing.Lease, error) {
	if err := s.authorize(ctx, Acquire, semaphore); err != nil {
		return leasing.Lease{}, err
	}
	lease, err := s.manager.Renew(ctx, callerOf(ctx).principal, semaphore, id)
	switch {
	case err == nil:
		s.leases.renewed(s.accountOf(ctx), lease)
	case errors.Is(err, sema.ErrLost):
		s.leases.drop(s.accountOf(ctx), leaseKey{semaphore, id})
	}
	return lease, err
}

// release releases a lease of the caller. It fails with ErrLost if there is no such lease.
// Repeating a release at this server is not an error.
func (s *service) release(ctx context.Context, semaphore, id string) error {
	if err := s.authorize(ctx, Acquire, semaphore); err != nil {
		return err
	}
	first, err := s.manager.ReleaseFirst(ctx, callerOf(ctx).principal, semaphore, id)
	if err == nil || errors.Is(err, sema.ErrLost) {
		s.leases.drop(s.accountOf(ctx), leaseKey{semaphore, id})
	}
	if first {
		s.counted.releases.Inc()
	}
	return err
}

// hold acquires a lease and renews it until ctx ends or send fails; then it releases the
// lease. It calls send after the acquire and after each renewal. It fails with ErrLost if
// the lease was lost.
func (s *service) hold(ctx context.Context, r acquireRequest, send func(leasing.Lease) error) error {
	request, err := s.validate(ctx, r)
	if err != nil {
		return err
	}
	if r.key != "" { // two connections would share a lease, and the first one to end would release it
		return invalid("idempotency key: not supported with a lease that is bound to its connection")
	}
	granted, asked := false, false
	defer func() {
		switch {
		case !granted:
			s.count(r.semaphore, err, asked)
		case !errors.Is(err, sema.ErrLost):
			s.counted.releases.Inc()
		}
	}()
	one := s.accountOf(ctx)
	if err = s.enter(one, streams, &s.streams); err != nil {
		return err
	}
	defer s.leave(one, streams, &s.streams)
	if err = s.accounts.takeSwept(one, held); err != nil {
		return err
	}
	defer s.accounts.put(one, held)
	ctx, cancel := withLife(ctx, s.life)
	defer cancel()
	asked = true
	err = s.manager.Hold(ctx, request, func(lease leasing.Lease) {
		granted = true
		if send(lease) != nil {
			cancel() // the client has disconnected
		}
	})
	return err
}

// A batchItem is one operation of a batch. One of its fields is set; err takes precedence.
type batchItem struct {
	acquire        *acquireRequest
	renew, release *leaseKey
	err            error // the item could not be decoded
}

// A batchResult is the result of an item. The lease of a release is nil.
type batchResult struct {
	lease *leasing.Lease
	err   error
}

// maxBatch bounds the number of items in a batch.
const maxBatch = 100

// batch runs operations concurrently, in no order, and returns their results in the order
// of the items. An item that fails does not affect the others.
func (s *service) batch(ctx context.Context, items []batchItem) ([]batchResult, error) {
	if len(items) == 0 || len(items) > maxBatch {
		return nil, invalid("requests: there are %d: want 1 to %d", len(items), maxBatch)
	}
	results, received := make([]batchResult, len(items)), make([]time.Time, len(items))
	var wg sync.WaitGroup
	for i, item := range items {
		wg.Go(func() { results[i], received[i] = s.one(ctx, item), time.Now() })
	}
	wg.Wait()
	for i := range results {
		results[i].age(time.Since(received[i]))
	}
	return results, nil
}

func (s *service) one(ctx context.Context, item batchItem) (result batchResult) {
	var lease leasing.Lease
	switch {
	case item.err != nil:
		result.err = item.err
	case item.acquire != nil:
		lease, result.err = s.acquire(ctx, *item.acquire)
	case item.renew != nil:
		lease, result.err = s.renew(ctx, item.renew.semaphore, item.renew.id)
	case item.release != nil:
		result.err = s.release(ctx, item.release.semaphore, item.release.id)
	}
	if result.err == nil && item.release == nil {
		result.lease = &lease
	}
	return result
}

// age subtracts the time that passed while other items of the batch waited. A lease that
// may have expired by then is reported as lost.
func (r *batchResult) age(d time.Duration) {
	if r.lease == nil || r.lease.ID == "" {
		return
	}
	if r.lease.Left -= d; r.lease.Left <= 0 {
		detail := "the lease was not renewed while other items of the batch waited; wait for less, or send the items one by one"
		*r = batchResult{err: &sema.Error{Op: "hold", Name: r.lease.Semaphore, Err: sema.ErrLost, Detail: detail}}
	}
}

// enter counts one more waiting call or stream of an account, if the limits allow it.
// Pair it with leave.
func (s *service) enter(one *account, r resource, all *atomic.Int64) error {
	err := s.accounts.take(one, r)
	if err == nil {
		all.Add(1)
	}
	return err
}

func (s *service) leave(one *account, r resource, all *atomic.Int64) {
	all.Add(-1)
	s.accounts.put(one, r)
}

// withLife returns a context that is also cancelled when life ends, with the cause errLeaving.
func withLife(ctx, life context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(errLeaving) })
	return ctx, func() { stop(); cancel(nil) }
}
