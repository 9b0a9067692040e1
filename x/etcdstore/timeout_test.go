package etcdstore

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema"
)

// TestStore_FaultOfTimeouts checks that callers recognise a timeout, whether the deadline
// was that of the client or one of the server, which reports it as text.
func TestStore_FaultOfTimeouts(t *testing.T) {
	t.Parallel()
	s := &Store{connection: connection{config: clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}}}}
	for _, timeout := range []error{
		context.DeadlineExceeded,
		status.Error(codes.DeadlineExceeded, "context deadline exceeded"),
		status.Error(codes.Unknown, "context deadline exceeded"),
	} {
		if err := s.fault(timeout); !errors.Is(err, sema.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: %v, want ErrUnavailable and DeadlineExceeded", timeout, err)
		}
	}
	if err := s.fault(status.Error(codes.Unknown, "another failure")); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want no timeout", err)
	}
}
