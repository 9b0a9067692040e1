package grpcadmit_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/grpcadmit"
)

// A service is a real gRPC service: the name in the request selects how Check fails, Watch sends
// one message and then waits for its caller.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (s *service) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	switch r.Service {
	case "broken":
		return nil, status.Error(codes.Internal, "broken")
	case "overloaded":
		return nil, status.Error(codes.ResourceExhausted, "overloaded")
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func (s *service) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	if len(sema.Held(stream.Context())) != 1 {
		return status.Error(codes.Internal, "the context carries no permit")
	}
	if err := stream.Send(&grpc_health_v1.HealthCheckResponse{}); err != nil || r.Service == "short" {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

// connect starts a server behind a controller, and returns a client behind another.
func connect(t *testing.T, server, client *admit.Controller) (grpc_health_v1.HealthClient, *service) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in, out := grpcadmit.Interceptor{Controller: server}, grpcadmit.Interceptor{Controller: client}
	s := grpc.NewServer(grpc.UnaryInterceptor(in.UnaryServer()), grpc.StreamInterceptor(in.StreamServer()))
	health := &service{}
	grpc_health_v1.RegisterHealthServer(s, health)
	go s.Serve(l)
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(out.UnaryClient()), grpc.WithStreamInterceptor(out.StreamClient()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), health
}

func controller(c admit.Config) *admit.Controller {
	c.Logger = slog.New(slog.DiscardHandler)
	return admit.New(c)
}

func TestUnary_RejectsWithRetryInfo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		config admit.Config
		code   codes.Code
		reason string
	}{
		{"saturation", admit.Config{Queue: wfq.New(0, sema.MaxWaiters(0))}, codes.Unavailable, "queue-full"},
		{"rate", admit.Config{Rate: spent(t)}, codes.ResourceExhausted, "rate"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.MaxWait = time.Second
			c, _ := connect(t, controller(test.config), controller(admit.Config{}))
			_, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			s := status.Convert(err)
			if s.Code() != test.code {
				t.Fatalf("%v", err)
			}
			var retry *errdetails.RetryInfo
			var info *errdetails.ErrorInfo
			for _, d := range s.Details() {
				switch d := d.(type) {
				case *errdetails.RetryInfo:
					retry = d
				case *errdetails.ErrorInfo:
					info = d
				}
			}
			if retry == nil || retry.RetryDelay.AsDuration() < time.Second || info == nil || info.Reason != test.reason {
				t.Errorf("details %v", s.Details())
			}
		})
	}
}

func spent(t *testing.T) rate.Limiter {
	g := rate.New(1, time.Hour)
	if _, err := g.TryAcquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestUnary_ResultsReachTheBreaker(t *testing.T) {
	t.Parallel()
	b := admit.NewBreaker(admit.BreakerConfig{MinCalls: 2, FailureRatio: 1})
	queue := wfq.New(1)
	c, _ := connect(t, controller(admit.Config{}), controller(admit.Config{Breaker: b, Queue: queue}))
	for _, name := range []string{"broken", "overloaded"} {
		if b.State() != admit.Closed {
			t.Error("opened early")
		}
		if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: name}); err == nil {
			t.Error("no error")
		}
	}
	if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable || b.State() != admit.Open {
		t.Errorf("%v, breaker %v", err, b.State())
	}
	if queue.Stats().InUse != 0 {
		t.Error("a permit leaked")
	}
}

func TestStream_HoldsAPermitUntilItEnds(t *testing.T) {
	t.Parallel()
	server, client := wfq.New(3), wfq.New(3)
	c, _ := connect(t, controller(admit.Config{Queue: server}), controller(admit.Config{Queue: client}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	long, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := long.Recv(); err != nil {
		t.Fatal(err)
	}
	if server.Stats().InUse != 1 || client.Stats().InUse != 1 {
		t.Errorf("%d and %d in use during a stream", server.Stats().InUse, client.Stats().InUse)
	}
	short, err := c.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "short"})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = short.Recv()
	}
	if client.Stats().InUse != 1 {
		t.Errorf("%d in use after a stream has ended", client.Stats().InUse)
	}
	cancel() // abandons the other
	for _, q := range []*wfq.Queue{server, client} {
		if err := q.WaitIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A brokenStream is a stream of a client whose methods fail.
type brokenStream struct {
	grpc.ClientStream
	err error
}

func (s brokenStream) SendMsg(any) error            { return s.err }
func (s brokenStream) Header() (metadata.MD, error) { return nil, s.err }
func (s brokenStream) RecvMsg(any) error            { return s.err }

// TestStreamClient_AnErrorReturnsThePermit ends streams by the errors after which grpc-go
// requires nothing of the caller.
func TestStreamClient_AnErrorReturnsThePermit(t *testing.T) {
	t.Parallel()
	failed := status.Error(codes.Unavailable, "away")
	for _, test := range []struct {
		name string
		err  error
		call func(grpc.ClientStream) error
		held int64
	}{
		{"SendMsg", failed, func(s grpc.ClientStream) error { return s.SendMsg(nil) }, 0},
		{"SendMsg io.EOF", io.EOF, func(s grpc.ClientStream) error { return s.SendMsg(nil) }, 1}, // RecvMsg returns the status
		{"Header", failed, func(s grpc.ClientStream) error { _, err := s.Header(); return err }, 0},
		{"RecvMsg", failed, func(s grpc.ClientStream) error { return s.RecvMsg(nil) }, 0},
		{"RecvMsg io.EOF", io.EOF, func(s grpc.ClientStream) error { return s.RecvMsg(nil) }, 0},
	} {
		q := wfq.New(1)
		in := grpcadmit.Interceptor{Controller: controller(admit.Config{Queue: q})}.StreamClient()
		open := func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
			return brokenStream{err: test.err}, nil
		}
		stream, err := in(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, nil, "/x/y", open)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.call(stream); err != test.err || q.Stats().InUse != test.held {
			t.Errorf("%s: %v, %d permits in use, want %d", test.name, err, q.Stats().InUse, test.held)
		}
	}
}

// TestInterceptors_PanicsReturnThePermit makes handler, invoker and streamer panic.
func TestInterceptors_PanicsReturnThePermit(t *testing.T) {
	t.Parallel()
	q := wfq.New(1)
	in := grpcadmit.Interceptor{Controller: controller(admit.Config{Queue: q})}
	for name, call := range map[string]func(){
		"unary server": func() {
			in.UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{}, func(context.Context, any) (any, error) { panic("broken") })
		},
		"unary client": func() {
			in.UnaryClient()(t.Context(), "", nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				panic("broken")
			})
		},
		"stream client": func() {
			in.StreamClient()(t.Context(), &grpc.StreamDesc{}, nil, "", func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
				panic("broken")
			})
		},
	} {
		func() {
			defer func() {
				if recover() == nil || q.Stats().InUse != 0 {
					t.Errorf("%s: no panic, or %d permits in use", name, q.Stats().InUse)
				}
			}()
			call()
		}()
	}
}
