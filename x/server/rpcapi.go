package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/leasing"
	"github.com/sema-go/sema/x/internal/wire"
	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
)

// An rpcAPI is the codec of Connect, gRPC and gRPC-Web over the service, for programs in
// other languages.
type rpcAPI struct{ service *service }

var _ semav1connect.SemaServiceHandler = rpcAPI{}

// fault converts an error for RPC clients. It has the text of JSON, the code and reasons of
// [wire.FaultOf], and when to retry if JSON has it.
func (a rpcAPI) fault(ctx context.Context, err error) error {
	var coded *connect.Error
	if err == nil || errors.As(err, &coded) || errors.Is(err, context.Canceled) || ctx.Err() != nil && !errors.Is(err, errLeaving) {
		return wire.FaultOf(err)
	}
	p := a.service.problemOf(err)
	a.service.logFailure("rpc", p, err)
	return retriable(a.coded(p, err), p)
}

// retriable adds the headers of a problem to an error and, as [errdetails.RetryInfo], when to
// retry.
func retriable(coded *connect.Error, p *problem) *connect.Error {
	maps.Copy(coded.Meta(), p.header)
	if p.Retry > 0 {
		if detail, err := connect.NewErrorDetail(&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(p.Retry) * time.Second)}); err == nil {
			coded.AddDetail(detail)
		}
	}
	return coded
}

func (a rpcAPI) coded(p *problem, err error) (coded *connect.Error) {
	switch p.Status {
	case http.StatusConflict:
		return connect.NewError(connect.CodeFailedPrecondition, errors.New(p.Detail))
	case http.StatusInternalServerError:
		return connect.NewError(connect.CodeInternal, errors.New(p.Detail))
	}
	errors.As(wire.FaultOf(worded{p.Detail, err}), &coded)
	return coded
}

// A worded error has another text than its cause.
type worded struct {
	text  string
	cause error
}

func (w worded) Error() string { return w.text }
func (w worded) Unwrap() error { return w.cause }

// failure converts an error to a part of a message.
func (a rpcAPI) failure(err error) *semav1.Failure {
	p := a.service.problemOf(err)
	a.service.logFailure("rpc", p, err)
	coded := a.coded(p, err)
	f := &semav1.Failure{Code: coded.Code().String(), Message: coded.Message(), RetryAfterMs: uint32(p.Retry) * 1000}
	for _, detail := range coded.Details() {
		if value, err := detail.Value(); err == nil {
			f.Fault, _ = value.(*semav1.Fault)
		}
	}
	return f
}

// Acquire implements [semav1connect.SemaServiceHandler], as do the other exported methods.
func (a rpcAPI) Acquire(ctx context.Context, m *semav1.AcquireRequest) (*semav1.AcquireResponse, error) {
	request, err := readAcquire(m)
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	lease, err := a.service.acquire(ctx, request)
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.AcquireResponse{Lease: leaseMessage(lease)}, nil
}

func readAcquire(m *semav1.AcquireRequest) (acquireRequest, error) {
	create, err := readSettings(m.GetSettings())
	if err == nil && create.Draining != nil {
		err = invalid("draining: an acquire cannot set it")
	}
	return acquireRequest{
		semaphore: m.GetSemaphore(), weight: cmp.Or(m.GetWeight(), 1), wait: millis(m.GetWaitMs()), create: create, holder: m.GetHolder(), key: m.GetIdempotencyKey(),
	}, err
}

func readSettings(m *semav1.Settings) (s settings, err error) {
	if m == nil {
		return s, nil
	}
	s = settings{Capacity: m.Capacity, TTL: optional(m.TtlMs), Window: optional(m.WindowMs), Ramp: m.Ramp, Draining: m.Draining, Numbered: m.Numbered}
	switch {
	case m.MaxWaiters != nil && m.ClearMaxWaiters:
		return s, invalid("max_waiters and clear_max_waiters: want one of them")
	case m.ClearMaxWaiters:
		s.MaxWaiters = new(maxWaiters)
	case m.MaxWaiters != nil:
		var ok bool
		if s.MaxWaiters, ok = newMaxWaiters(*m.MaxWaiters); !ok {
			return s, invalid("max_waiters: %d: want %s", *m.MaxWaiters, wantWaiters)
		}
	}
	return s, nil
}

// optional converts optional milliseconds.
func optional(ms *uint32) *duration {
	if ms == nil {
		return nil
	}
	return new(duration(millis(*ms)))
}

func millis(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

// milliseconds converts a duration to milliseconds, within the range of a uint32.
func milliseconds[D ~int64](d D) uint32 {
	return uint32(min(max(0, time.Duration(d).Milliseconds()), math.MaxUint32))
}

func leaseMessage(l leasing.Lease) *semav1.Lease {
	m := &semav1.Lease{Semaphore: l.Semaphore, Id: l.ID, Weight: l.Weight, Slots: slotsOf(l.Slots), TtlMs: milliseconds(l.TTL), ValidForMs: milliseconds(l.Left.Round(time.Millisecond))}
	if l.ID == "" {
		return m
	}
	m.Lease = uint64(l.Fence.Seq)
	m.Fence = &semav1.Fence{Seq: uint64(l.Fence.Seq), Floor: uint64(l.Fence.Floor), Exact: l.Fence.Exact}
	for _, r := range l.Fence.Revoked {
		m.Fence.Revoked = append(m.Fence.Revoked, &semav1.Range{From: uint64(r.From), To: uint64(r.To)})
	}
	return m
}

func (a rpcAPI) Renew(ctx context.Context, m *semav1.RenewRequest) (*semav1.RenewResponse, error) {
	lease, err := a.service.renew(ctx, m.GetSemaphore(), m.GetId())
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.RenewResponse{Lease: leaseMessage(lease)}, nil
}

func (a rpcAPI) Release(ctx context.Context, m *semav1.ReleaseRequest) (*semav1.ReleaseResponse, error) {
	if err := a.service.release(ctx, m.GetSemaphore(), m.GetId()); err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.ReleaseResponse{}, nil
}

func (a rpcAPI) Hold(ctx context.Context, m *semav1.HoldRequest, out *connect.ServerStream[semav1.HoldResponse]) error {
	request, err := readAcquire(m.GetAcquire())
	if err != nil {
		return a.fault(ctx, err)
	}
	granted := false
	err = a.service.hold(ctx, request, func(l leasing.Lease) error {
		granted = true
		return out.Send(&semav1.HoldResponse{Event: &semav1.HoldResponse_Held{Held: leaseMessage(l)}})
	})
	if granted && errors.Is(err, sema.ErrLost) {
		return out.Send(&semav1.HoldResponse{Event: &semav1.HoldResponse_Lost{Lost: a.failure(err)}})
	}
	return a.fault(ctx, err)
}

func (a rpcAPI) Batch(ctx context.Context, m *semav1.BatchRequest) (*semav1.BatchResponse, error) {
	items := make([]batchItem, len(m.GetRequests()))
	for i, item := range m.GetRequests() {
		items[i] = readItemMessage(item)
	}
	results, err := a.service.batch(ctx, items)
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	reply := &semav1.BatchResponse{Results: make([]*semav1.BatchResult, len(results))}
	for i, result := range results {
		reply.Results[i] = &semav1.BatchResult{}
		switch {
		case result.err != nil:
			reply.Results[i].Result = &semav1.BatchResult_Failure{Failure: a.failure(result.err)}
		case result.lease != nil:
			reply.Results[i].Result = &semav1.BatchResult_Lease{Lease: leaseMessage(*result.lease)}
		}
	}
	return reply, nil
}

func readItemMessage(m *semav1.BatchItem) batchItem {
	switch item := m.GetRequest().(type) {
	case *semav1.BatchItem_Acquire:
		request, err := readAcquire(item.Acquire)
		return batchItem{acquire: &request, err: err}
	case *semav1.BatchItem_Renew:
		return batchItem{renew: &leaseKey{item.Renew.GetSemaphore(), item.Renew.GetId()}}
	case *semav1.BatchItem_Release:
		return batchItem{release: &leaseKey{item.Release.GetSemaphore(), item.Release.GetId()}}
	}
	return batchItem{err: invalid("a request of the batch has no acquire, renew or release")}
}

func (a rpcAPI) List(ctx context.Context, m *semav1.ListRequest) (*semav1.ListResponse, error) {
	p, err := newPage(int64(m.GetLimit()), m.GetAfter())
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	found, next, err := a.service.list(ctx, m.GetPrefix(), p)
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	reply := &semav1.ListResponse{Semaphores: make([]*semav1.Semaphore, len(found)), Next: next}
	for i, one := range found {
		reply.Semaphores[i] = semaphoreMessage(one)
	}
	return reply, nil
}

func (a rpcAPI) Info(ctx context.Context, m *semav1.InfoRequest) (*semav1.InfoResponse, error) {
	p, err := newPage(int64(m.GetLimit()), m.GetAfter())
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	now, err := a.service.info(ctx, m.GetSemaphore(), p)
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return infoMessage(now), nil
}

func semaphoreMessage(s summary) *semav1.Semaphore {
	m := &semav1.Semaphore{
		Name: s.Name, Capacity: s.Capacity, EffectiveCapacity: s.Effective, InUse: s.InUse, Waiting: s.Waiting, Draining: s.Draining,
		Ramp: s.Ramp, MaxWaiters: s.MaxWaiters, TtlMs: milliseconds(s.TTL), WindowMs: milliseconds(s.Window), Version: s.Version, Numbered: s.Numbered,
	}
	if s.Kind == rateKind {
		m.Kind = semav1.Kind_KIND_RATE
	}
	if t := s.Times; t != nil {
		m.Times = &semav1.Times{
			WindowMs: milliseconds(t.Window), ArrivalsPerSecond: t.Arrivals, GrantsPerSecond: t.Grants,
			HeadAge: t.HeadAge.number(), OldestHold: t.OldestHold.number(),
			WaitP50: t.WaitP50.number(), WaitP99: t.WaitP99.number(), HoldP50: t.HoldP50.number(), HoldP99: t.HoldP99.number(),
		}
		if t.FirstNeeds > 0 {
			m.Times.FirstNeeds = &t.FirstNeeds
		}
	}
	return m
}

// number returns an optional duration in seconds.
func (s *seconds) number() *float64 {
	if s == nil {
		return nil
	}
	return new(time.Duration(*s).Seconds())
}

func infoMessage(now info) *semav1.InfoResponse {
	m := &semav1.InfoResponse{Semaphore: semaphoreMessage(now.summary), Next: now.Next}
	for _, h := range now.Holders {
		m.Holders = append(m.Holders, &semav1.Holder{
			Lease: h.Lease, Weight: h.Weight, SinceUs: h.Since.UnixMicro(), RenewedUs: h.Renewed.UnixMicro(), Holder: h.Holder, By: h.By, Site: h.Site, Labels: h.Labels,
			Instance: h.Instance, Host: h.Host, Process: h.Process,
			Pooled: h.Pooled, Revoked: h.Revoked, Slots: h.Slots,
		})
	}
	for _, w := range now.Waiters {
		m.Waiters = append(m.Waiters, &semav1.Waiter{
			Weight: w.Weight, SinceUs: w.Since.UnixMicro(), Holder: w.Holder, By: w.By, Site: w.Site, Labels: w.Labels, Instance: w.Instance, Host: w.Host, Process: w.Process,
		})
	}
	return m
}

func (a rpcAPI) Configure(ctx context.Context, m *semav1.ConfigureRequest) (*semav1.ConfigureResponse, error) {
	wanted, err := readSettings(m.GetSettings())
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	when := conditions{version: m.GetVersion()}
	if m.GetCreate() {
		when.noneMatch = &entityTags{any: true}
	}
	now, created, err := a.service.configure(ctx, m.GetSemaphore(), when, wanted)
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.ConfigureResponse{Semaphore: semaphoreMessage(now.summary), Created: created}, nil
}

func (a rpcAPI) Drain(ctx context.Context, m *semav1.DrainRequest) (*semav1.DrainResponse, error) {
	now, err := a.service.drain(ctx, m.GetSemaphore(), conditions{version: m.GetVersion()}, millis(m.GetWaitMs()))
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.DrainResponse{Semaphore: semaphoreMessage(now.summary)}, nil
}

func (a rpcAPI) Resume(ctx context.Context, m *semav1.ResumeRequest) (*semav1.ResumeResponse, error) {
	now, err := a.service.resume(ctx, m.GetSemaphore(), conditions{version: m.GetVersion()})
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.ResumeResponse{Semaphore: semaphoreMessage(now.summary)}, nil
}

func (a rpcAPI) Revoke(ctx context.Context, m *semav1.RevokeRequest) (*semav1.RevokeResponse, error) {
	err := a.service.revoke(ctx, m.GetSemaphore(), fleet.Revocation{Lease: protocol.Seq(m.GetLease()), AtOnce: m.GetAtOnce(), Why: m.GetWhy()})
	if err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.RevokeResponse{}, nil
}

func (a rpcAPI) Delete(ctx context.Context, m *semav1.DeleteRequest) (*semav1.DeleteResponse, error) {
	if err := a.service.delete(ctx, m.GetSemaphore(), conditions{version: m.GetVersion()}); err != nil {
		return nil, a.fault(ctx, err)
	}
	return &semav1.DeleteResponse{}, nil
}

func (a rpcAPI) Watch(ctx context.Context, m *semav1.WatchRequest, out *connect.ServerStream[semav1.WatchResponse]) error {
	err := a.service.watch(ctx, m.GetSemaphore(), func(now *observation) bool {
		reply := &semav1.WatchResponse{}
		switch {
		case now == nil:
		case now.err != nil:
			reply.Event = &semav1.WatchResponse_Failure{Failure: a.failure(now.err)}
		default:
			reply.Event = &semav1.WatchResponse_Info{Info: infoMessage(now.info())}
		}
		return out.Send(reply) == nil
	})
	return a.fault(ctx, err)
}
