// Package grpcadmit puts an [admit.Controller] in front of the methods of a gRPC server, or
// in front of the calls of a gRPC client.
//
//	in := grpcadmit.Interceptor{Controller: c, Request: classify}
//	server := grpc.NewServer(grpc.UnaryInterceptor(in.UnaryServer()), grpc.StreamInterceptor(in.StreamServer()))
//
// A call that is rejected gets RESOURCE_EXHAUSTED if its sender has sent too much, and
// UNAVAILABLE if the service cannot serve it now, both with a RetryInfo and an ErrorInfo
// whose reason is that of the rejection. A permit is held until a call ends, also if its
// handler panics; a stream holds it until the stream ends. Handlers find the admission by
// [admit.FromContext]: to settle its cost, or to respond cheaply if it is degraded. A degraded
// call of a client is rejected.
//
// For HTTP use [admit.HTTP]. MaxConcurrentStreams of grpc-go bounds the streams of one
// connection, not those of a server.
package grpcadmit

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
)

// An Interceptor admits calls.
type Interceptor struct {
	Controller *admit.Controller
	// Request describes a call to the controller: its class, weight and cost. Default: the
	// zero Request.
	Request func(ctx context.Context, method string) admit.Request
}

// check panics without a controller, before the first call does.
func (i Interceptor) check() {
	if i.Controller == nil {
		panic("grpcadmit: the field Controller of the Interceptor is nil; use admit.New")
	}
}

func (i Interceptor) admit(ctx context.Context, method string) (admit.Admission, error) {
	var r admit.Request
	if i.Request != nil {
		r = i.Request(ctx, method)
	}
	return i.Controller.Admit(ctx, r)
}

// UnaryServer returns an interceptor for the unary methods of a server.
func (i Interceptor) UnaryServer() grpc.UnaryServerInterceptor {
	i.check()
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		a, err := i.admit(ctx, info.FullMethod)
		if err != nil {
			return nil, StatusOf(err).Err()
		}
		defer a.Done(admit.Failed) // the handler has panicked
		held, cancel := a.Context(ctx)
		defer cancel()
		resp, err := handler(held, req)
		a.Done(ResultOf(ctx, err))
		return resp, err
	}
}

// StreamServer returns an interceptor for the streams of a server.
func (i Interceptor) StreamServer() grpc.StreamServerInterceptor {
	i.check()
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		a, err := i.admit(stream.Context(), info.FullMethod)
		if err != nil {
			return StatusOf(err).Err()
		}
		defer a.Done(admit.Failed)
		held, cancel := a.Context(stream.Context())
		defer cancel()
		err = handler(srv, &heldStream{stream, held})
		a.Done(ResultOf(stream.Context(), err))
		return err
	}
}

// A heldStream is a stream of a server, with the context that carries the permit.
type heldStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements [grpc.ServerStream].
func (s *heldStream) Context() context.Context { return s.ctx }

// admitClient admits a call of a client. There is no cheap response for it, and a degraded call
// holds no permit, so it is rejected.
func (i Interceptor) admitClient(ctx context.Context, method string) (admit.Admission, error) {
	a, err := i.admit(ctx, method)
	if err != nil || !a.Degraded() {
		return a, err
	}
	a.Done(admit.Ignored)
	return a, &admit.Rejection{Controller: i.Controller.Name(), Reason: admit.ReasonFull, Err: sema.ErrFull}
}

// UnaryClient returns an interceptor for the unary calls of a client.
func (i Interceptor) UnaryClient() grpc.UnaryClientInterceptor {
	i.check()
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		a, err := i.admitClient(ctx, method)
		if err != nil {
			return StatusOf(err).Err()
		}
		defer a.Done(admit.Failed)
		err = invoker(ctx, method, req, reply, conn, opts...)
		a.Done(ResultOf(ctx, err))
		return err
	}
}

// ResultOf returns the result of a call that returned err: OK also for errors that are
// those of the request, such as NOT_FOUND; Dropped for RESOURCE_EXHAUSTED, UNAVAILABLE and
// DEADLINE_EXCEEDED; Ignored for a call whose caller went away; Failed for others.
func ResultOf(ctx context.Context, err error) admit.Result {
	if ctx.Err() == context.Canceled {
		return admit.Ignored
	}
	switch status.Code(err) {
	case codes.OK, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Unimplemented:
		return admit.OK
	case codes.ResourceExhausted, codes.Unavailable, codes.DeadlineExceeded:
		return admit.Dropped
	case codes.Canceled:
		return admit.Ignored
	}
	return admit.Failed
}
