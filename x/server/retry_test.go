package server_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/sema-go/sema/x/semav1"
	"github.com/sema-go/sema/x/semav1/semav1connect"
	"github.com/sema-go/sema/x/server"
)

// TestRetryAfter_FollowsTheRate checks a rate whose permits return in ten seconds: a client is
// notified of that, and clients that were rejected together receive different times.
func TestRetryAfter_FollowsTheRate(t *testing.T) {
	t.Parallel()
	const window = 10
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "mails", Capacity: 100, Window: window * time.Second}}})
	before := time.Now()
	s.want(201, "POST", "/v1/semaphores/mails/leases?weight=100", "")
	seen := map[string]bool{}
	for range 40 {
		a := s.send("POST", "/v1/semaphores/mails/leases", "") // one of a hundred, which is a tenth of a second on average
		least := window - int(time.Since(before)/time.Second) - 1
		if least <= 0 {
			break // a very slow machine
		}
		if a.status != 429 {
			t.Fatal(a.text)
		}
		a.wantRetry(t, least, window, "full")
		seen[a.header.Get("Retry-After")] = true
	}
	if len(seen) < 2 {
		t.Errorf("all received the same time: %v", seen)
	}
}

// TestRetryAfter_OverRPC checks that an error has a RetryInfo with the delay of its header, over
// Connect and gRPC.
func TestRetryAfter_OverRPC(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "mails", Capacity: 1, Window: time.Hour}}})
	s.want(201, "POST", "/v1/semaphores/mails/leases", "")
	s.want(201, "PUT", "/v1/semaphores/closed", `{"capacity": 1, "draining": true}`)
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "json": {connect.WithProtoJSON()}, "grpc-web": {connect.WithGRPCWeb()}} {
		for semaphore, want := range map[string]struct {
			reason string
			least  time.Duration
		}{"mails": {"full", 50 * time.Minute}, "closed": {"draining", 10 * time.Second}} {
			client := semav1connect.NewSemaServiceClient(s.http.Client(), s.url, options...)
			_, err := client.Acquire(t.Context(), &semav1.AcquireRequest{Semaphore: semaphore})
			var coded *connect.Error
			if !errors.As(err, &coded) {
				t.Fatal(err)
			}
			var retry *errdetails.RetryInfo
			for _, detail := range coded.Details() {
				if value, err := detail.Value(); err == nil {
					if found, ok := value.(*errdetails.RetryInfo); ok {
						retry = found
					}
				}
			}
			delay := retry.GetRetryDelay().AsDuration()
			if delay < want.least || delay > 2*time.Hour || coded.Meta().Get("Retry-After") != strconv.Itoa(int(delay/time.Second)) || coded.Meta().Get("X-Shed-Reason") != want.reason {
				t.Errorf("%s, %s: %v, %v", name, semaphore, retry, coded.Meta())
			}
		}
	}
}

// TestRetryAfter_OfLimits checks the limits of clients and of the server.
func TestRetryAfter_OfLimits(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Tokens: []server.Token{all("a"), all("b")}, Limits: server.Limits{Held: 4, Names: 100}})
	for _, c := range []struct {
		token  string
		status int
		reason string
	}{{"a", 201, ""}, {"a", 201, ""}, {"a", 429, "limit"}, {"b", 201, ""}, {"b", 201, ""}, {"b", 503, "busy"}} {
		s.auth = c.token
		a := s.want(c.status, "POST", "/v1/semaphores/db/leases?capacity=9", "")
		if c.reason != "" {
			a.wantRetry(t, 1, 30, c.reason)
		}
	}
}
