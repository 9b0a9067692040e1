package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/desk"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
)

// rpc is the service for programs in other languages: the same verbs as over JSON.
type rpc struct{ guarded }

// fault returns an error as RPC clients read it: in words of the API, with the code and
// the reasons of [wire.FaultOf], and with Retry-After where JSON has it.
func (s rpc) fault(ctx context.Context, err error) error {
	var coded *connect.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || ctx.Err() != nil && !errors.Is(err, errLeaving) {
		return wire.FaultOf(err)
	}
	p := problemOf(err)
	s.logFailure("rpc", p, err)
	switch p.Status {
	case http.StatusConflict:
		coded = connect.NewError(connect.CodeFailedPrecondition, errors.New(p.Detail))
	case http.StatusInternalServerError:
		coded = connect.NewError(connect.CodeInternal, errors.New(p.Detail))
	default:
		errors.As(wire.FaultOf(worded{p.Detail, err}), &coded)
	}
	maps.Copy(coded.Meta(), p.header)
	return coded
}

// A worded error has another text than its cause.
type worded struct {
	text  string
	cause error
}

func (w worded) Error() string { return w.text }
func (w worded) Unwrap() error { return w.cause }

func (s rpc) Acquire(ctx context.Context, m *semav1.AcquireRequest) (*semav1.AcquireResponse, error) {
	request, err := s.wish(ctx, m)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	lease, err := s.lend(ctx, request)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.AcquireResponse{Lease: leaseMessage(lease)}, nil
}

// wish is a request as the desk has it, if it is allowed.
func (s rpc) wish(ctx context.Context, m *semav1.AcquireRequest) (desk.Request, error) {
	if err := who(ctx).allow(Acquire, m.GetName()); err != nil {
		return desk.Request{}, err
	}
	settings := m.GetSettings()
	w := wish{
		Weight: cmp.Or(m.GetWeight(), 1), Wait: millis[duration](m.GetWaitMs()), Meta: m.GetHolder(),
		ramp: settings.GetRamp(), maxWaiters: settings.GetMaxWaiters(), rate: millis[time.Duration](settings.GetRateMs()),
	}
	if settings != nil {
		w.Capacity, w.TTL = settings.Capacity, optional[duration](settings.TtlMs)
	}
	return s.request(ctx, m.GetName(), m.GetIdempotencyKey(), w)
}

// optional converts milliseconds that may be absent.
func optional[D ~int64](ms *uint32) *D {
	if ms == nil {
		return nil
	}
	return new(millis[D](*ms))
}

func millis[D ~int64](ms uint32) D { return D(time.Duration(ms) * time.Millisecond) }

func leaseMessage(l desk.Lease) *semav1.Lease {
	m := &semav1.Lease{Id: l.ID, Name: l.Semaphore, Weight: l.Weight, TtlMs: uint32(l.Left.Milliseconds())}
	if l.ID == "" {
		return m
	}
	m.Fence = &semav1.Fence{Seq: uint64(l.Fence.Seq), Floor: uint64(l.Fence.Floor), Exact: l.Fence.Exact}
	for _, r := range l.Fence.Revoked {
		m.Fence.Revoked = append(m.Fence.Revoked, &semav1.Range{From: uint64(r.From), To: uint64(r.To)})
	}
	return m
}

func (s rpc) Renew(ctx context.Context, m *semav1.RenewRequest) (*semav1.RenewResponse, error) {
	if err := who(ctx).allow(Acquire, m.GetName()); err != nil {
		return nil, s.fault(ctx, err)
	}
	lease, err := s.desk.Renew(ctx, m.GetName(), m.GetLease())
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.RenewResponse{Lease: leaseMessage(lease)}, nil
}

func (s rpc) Release(ctx context.Context, m *semav1.ReleaseRequest) (*semav1.ReleaseResponse, error) {
	if err := who(ctx).allow(Acquire, m.GetName()); err != nil {
		return nil, s.fault(ctx, err)
	}
	released, err := s.desk.Release(ctx, m.GetName(), m.GetLease())
	if err != nil && !errors.Is(err, sema.ErrLost) {
		return nil, s.fault(ctx, err)
	}
	return &semav1.ReleaseResponse{Released: released}, nil
}

// Hold is a lease as long as its stream.
func (s rpc) Hold(ctx context.Context, m *semav1.HoldRequest, out *connect.ServerStream[semav1.HoldResponse]) error {
	request, err := s.wish(ctx, m.GetAcquire())
	if err == nil {
		err = keyless(request)
	}
	if err != nil {
		return s.fault(ctx, err)
	}
	ctx, cancel := until(ctx, s.life)
	defer cancel()
	granted := false
	err = s.desk.Hold(ctx, request, func(l desk.Lease) {
		granted = true
		if out.Send(&semav1.HoldResponse{Event: &semav1.HoldResponse_Held{Held: leaseMessage(l)}}) != nil {
			cancel() // it has gone
		}
	})
	if granted && errors.Is(err, sema.ErrLost) {
		return out.Send(&semav1.HoldResponse{Event: &semav1.HoldResponse_Lost{Lost: &semav1.Loss{Why: err.Error()}}})
	}
	return s.fault(ctx, err)
}

// Batch does one after the other.
func (s rpc) Batch(ctx context.Context, m *semav1.BatchRequest) (*semav1.BatchResponse, error) {
	if n := len(m.GetItems()); n == 0 || n > maxSteps {
		return nil, s.fault(ctx, invalid("items: there are %d: want 1 to %d", n, maxSteps))
	}
	answer := &semav1.BatchResponse{}
	leases := map[*semav1.Lease]time.Time{}
	for _, item := range m.GetItems() {
		result := s.one(ctx, item)
		answer.Results = append(answer.Results, result)
		for _, l := range []*semav1.Lease{result.GetAcquire().GetLease(), result.GetRenew().GetLease()} {
			if l != nil {
				leases[l] = time.Now()
			}
		}
	}
	for l, had := range leases { // which have grown older while the others were done
		l.TtlMs -= min(l.TtlMs, uint32(time.Since(had).Milliseconds()))
	}
	return answer, nil
}

func (s rpc) one(ctx context.Context, item *semav1.BatchItem) *semav1.BatchResult {
	var err error
	switch wanted := item.GetItem().(type) {
	case *semav1.BatchItem_Acquire:
		var r *semav1.AcquireResponse
		if wanted.Acquire.GetWaitMs() > 0 {
			err = s.fault(ctx, invalid("wait_ms: a batch cannot wait, its other leases would expire meanwhile"))
		} else if r, err = s.Acquire(ctx, wanted.Acquire); err == nil {
			return &semav1.BatchResult{Result: &semav1.BatchResult_Acquire{Acquire: r}}
		}
	case *semav1.BatchItem_Renew:
		var r *semav1.RenewResponse
		if r, err = s.Renew(ctx, wanted.Renew); err == nil {
			return &semav1.BatchResult{Result: &semav1.BatchResult_Renew{Renew: r}}
		}
	case *semav1.BatchItem_Release:
		var r *semav1.ReleaseResponse
		if r, err = s.Release(ctx, wanted.Release); err == nil {
			return &semav1.BatchResult{Result: &semav1.BatchResult_Release{Release: r}}
		}
	default:
		err = s.fault(ctx, invalid("an item has none of acquire, renew and release"))
	}
	failure := &semav1.Failure{Code: connect.CodeOf(err).String(), Message: err.Error()}
	var coded *connect.Error
	if errors.As(err, &coded) {
		failure.Message = coded.Message() // without the code
		for _, detail := range coded.Details() {
			if value, err := detail.Value(); err == nil {
				failure.Fault, _ = value.(*semav1.Fault)
			}
		}
	}
	return &semav1.BatchResult{Result: &semav1.BatchResult_Failure{Failure: failure}}
}

func (s rpc) List(ctx context.Context, m *semav1.ListRequest) (*semav1.ListResponse, error) {
	size := rpcPage(m.GetPageSize())
	page, err := s.guarded.List(ctx, protocol.ListQuery{Prefix: m.GetPrefix(), After: m.GetAfter(), Limit: size})
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	answer := &semav1.ListResponse{More: len(page) == size}
	for _, one := range page {
		answer.Semaphores = append(answer.Semaphores, semaphoreMessage(one))
	}
	return answer, nil
}

func (s rpc) Inspect(ctx context.Context, m *semav1.InspectRequest) (*semav1.InspectResponse, error) {
	if err := s.check(ctx, Read, m.GetName()); err != nil {
		return nil, s.fault(ctx, err)
	}
	snapshot, err := s.client.Inspect(ctx, m.GetName())
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	answer, err := inspectPageMessage(m.GetName(), snapshot, page{limit: rpcPage(m.GetPageSize()), after: m.GetAfter()})
	if err != nil {
		return nil, wire.FaultOf(err)
	}
	return answer, nil
}

func semaphoreMessage(s protocol.Summary) *semav1.Semaphore {
	c := s.Config
	return &semav1.Semaphore{
		Name: s.Name, Kind: semav1.Kind(c.Kind), Capacity: c.Capacity, Effective: s.Effective, InUse: s.InUse, Waiters: s.Waiting,
		Draining: c.Draining, Version: c.Version, TtlMs: uint32(c.TTL / 1000), Ramp: c.Ramp, MaxWaiters: c.MaxWaiters, RateMs: uint32(c.Window / 1000),
	}
}

func inspectMessage(name string, s protocol.Snapshot) *semav1.InspectResponse {
	answer := &semav1.InspectResponse{Semaphore: semaphoreMessage(s.Summary(name))}
	sessions := map[protocol.Session]protocol.SessionInfo{}
	for _, session := range s.Sessions {
		sessions[session.Session] = session
	}
	for _, l := range s.Leases {
		session := sessions[l.Session]
		answer.Holders = append(answer.Holders, &semav1.Holding{
			Fence: uint64(l.Seq), Weight: l.Weight, Holder: l.Details.About(), Instance: session.Client.Instance, SinceUs: int64(l.Since), SeenUs: int64(session.Renewed),
			Pooled: l.Pooled, Revoked: l.Revoked,
		})
	}
	for _, w := range s.Queue {
		answer.Waiters = append(answer.Waiters, &semav1.Waiter{Weight: w.Weight, Holder: w.Details.About(), Instance: sessions[w.Session].Client.Instance})
	}
	return answer
}

func (s rpc) Configure(ctx context.Context, m *semav1.ConfigureRequest) (*semav1.ConfigureResponse, error) {
	name, settings := m.GetName(), m.GetSettings()
	wanted := configuration{}
	if settings != nil {
		wanted.Capacity, wanted.Ramp, wanted.MaxWaiters = settings.Capacity, settings.Ramp, settings.MaxWaiters
		wanted.TTL, wanted.rate = optional[duration](settings.TtlMs), optional[time.Duration](settings.RateMs)
	}
	if err := s.reconfigure(ctx, name, conditions{version: m.GetVersion()}, wanted); err != nil {
		return nil, s.fault(ctx, err)
	}
	snapshot, err := s.client.Inspect(ctx, name)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.ConfigureResponse{Semaphore: semaphoreMessage(snapshot.Summary(name))}, nil
}

// Drain waits until nothing is held, if the request has a wait. The response says how
// much is.
func (s rpc) Drain(ctx context.Context, m *semav1.DrainRequest) (*semav1.DrainResponse, error) {
	if err := s.pause(ctx, "drain", m.GetName(), true); err != nil {
		return nil, s.fault(ctx, err)
	}
	if m.GetWaitMs() > 0 {
		leave, err := s.wait(ctx)
		if err != nil {
			return nil, s.fault(ctx, err)
		}
		defer leave()
		ending, stop := until(ctx, s.life)
		defer stop()
		within, cancel := context.WithTimeout(ending, min(millis[time.Duration](m.GetWaitMs()), s.options.Limits.MaxWait))
		defer cancel()
		for now, err := range s.client.Watch(within, m.GetName(), watchEvery) {
			if err == nil && now.InUse == 0 {
				break
			}
		}
	}
	snapshot, err := s.client.Inspect(ctx, m.GetName())
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.DrainResponse{InUse: snapshot.InUse}, nil
}

func (s rpc) Resume(ctx context.Context, m *semav1.ResumeRequest) (*semav1.ResumeResponse, error) {
	if err := s.pause(ctx, "resume", m.GetName(), false); err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.ResumeResponse{}, nil
}

func (s rpc) Revoke(ctx context.Context, m *semav1.RevokeRequest) (*semav1.RevokeResponse, error) {
	revocation := fleet.Revocation{Lease: protocol.Seq(m.GetFence()), AtOnce: m.GetNow(), By: who(ctx).name, Why: m.GetWhy()}
	err := s.guarded.Administer(ctx, m.GetName(), fleet.Command{Revoke: &revocation})
	if err = s.missingLease(ctx, m.GetName(), revocation.Lease, err); err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.RevokeResponse{}, nil
}

func (s rpc) Delete(ctx context.Context, m *semav1.DeleteRequest) (*semav1.DeleteResponse, error) {
	if err := s.guarded.Administer(ctx, m.GetName(), fleet.Command{Delete: true}); err != nil {
		return nil, s.fault(ctx, err)
	}
	return &semav1.DeleteResponse{}, nil
}

func (s rpc) Watch(ctx context.Context, m *semav1.WatchRequest, out *connect.ServerStream[semav1.WatchResponse]) error {
	name := m.GetName()
	if err := s.guarded.check(ctx, Read, name); err != nil {
		return s.fault(ctx, err)
	}
	leave, err := s.stream(ctx)
	if err != nil {
		return s.fault(ctx, err)
	}
	defer leave()
	ctx, cancel := until(ctx, s.looking)
	defer cancel()
	every := max(millis[time.Duration](m.GetEveryMs()), watchEvery)
	for snapshot, err := range s.client.Watch(ctx, name, every) {
		if err != nil {
			return s.fault(ctx, err)
		}
		if !s.sending(ctx, func() bool { return out.Send(&semav1.WatchResponse{Now: firstPageMessage(name, snapshot)}) == nil }) {
			return nil
		}
	}
	return nil
}
