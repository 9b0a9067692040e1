package grpcadmit_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema/admit"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/wfq"
	"github.com/sema-go/sema/x/grpcadmit"
)

// degrading returns a controller whose only permit is in use, and which degrades all requests
// that would have to wait.
func degrading(t *testing.T) *admit.Controller {
	t.Helper()
	c := controller(admit.Config{Queue: wfq.New(1), Degrade: func(admit.Load) bool { return true }})
	a, err := c.Admit(t.Context(), admit.Request{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Done(admit.OK) })
	return c
}

func TestServer_HandlersFindTheAdmission(t *testing.T) {
	t.Parallel()
	in := grpcadmit.Interceptor{Controller: degrading(t)}
	degraded := 0
	handler := func(ctx context.Context, _ any) (any, error) {
		if admit.FromContext(ctx).Degraded() {
			degraded++
		}
		return nil, nil
	}
	if _, err := in.UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{}, handler); err != nil || degraded != 1 {
		t.Errorf("%v, %d handlers were to respond cheaply", err, degraded)
	}
	budget := rate.New(100, time.Hour)
	in = grpcadmit.Interceptor{
		Controller: controller(admit.Config{Budget: budget}),
		Request:    func(context.Context, string) admit.Request { return admit.Request{Cost: 80} },
	}
	settles := func(ctx context.Context, _ any) (any, error) {
		admit.FromContext(ctx).Settle(10)
		return nil, nil
	}
	if _, err := in.UnaryServer()(t.Context(), nil, &grpc.UnaryServerInfo{}, settles); err != nil || budget.Stats().Free < 90 {
		t.Errorf("%v, %d of 100 are left after 10 were used", err, budget.Stats().Free)
	}
}

func TestClient_SendsNothingWithoutAPermit(t *testing.T) {
	t.Parallel()
	// A client has no cheap response: a call that is degraded must not be sent, since it would
	// exceed the limit.
	client, _ := connect(t, controller(admit.Config{}), degrading(t))
	if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("unary call: %v, want UNAVAILABLE", err)
	}
	if _, err := client.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("stream: %v, want UNAVAILABLE", err)
	}
}

func TestStatusOf_InvalidRequestsAreNotRetried(t *testing.T) {
	t.Parallel()
	_, err := controller(admit.Config{}).Admit(t.Context(), admit.Request{Weight: -1})
	if s := grpcadmit.StatusOf(err); s.Code() != codes.Internal {
		t.Errorf("%v for a classification that is invalid: clients would retry", s)
	}
	if s := grpcadmit.StatusOf(context.DeadlineExceeded); s.Code() != codes.DeadlineExceeded {
		t.Error(s)
	}
}

func TestInterceptor_WithoutAControllerPanicsAtOnce(t *testing.T) {
	t.Parallel()
	var in grpcadmit.Interceptor
	for name, make := range map[string]func(){
		"unary server": func() { in.UnaryServer() }, "stream server": func() { in.StreamServer() },
		"unary client": func() { in.UnaryClient() }, "stream client": func() { in.StreamClient() },
	} {
		func() {
			defer func() {
				if why, _ := recover().(string); why == "" {
					t.Errorf("%s: no panic with a reason", name)
				}
			}()
			make()
		}()
	}
}
