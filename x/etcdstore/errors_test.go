package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sema-go/sema/fleet/protocol"
)

// TestIsTemporary_ClassifiesErrors checks which errors are retried, as the result of the
// attempt is unknown. Others are returned at once.
func TestIsTemporary_ClassifiesErrors(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		context.DeadlineExceeded:                                        true,
		status.Error(codes.Unknown, "context deadline exceeded"):        true, // from busy servers
		status.Error(codes.DeadlineExceeded, "late"):                    true,
		status.Error(codes.Unavailable, "transport is closing"):         true,
		status.Error(codes.Unavailable, "dial tcp: connection refused"): false,
		status.Error(codes.Unknown, "something else"):                   false,
		rpctypes.ErrLeaderChanged:                                       true,
		rpctypes.ErrNoLeader:                                            true,
		rpctypes.ErrTimeoutDueToLeaderFail:                              true,
		rpctypes.ErrTooManyRequests:                                     true,
		rpctypes.ErrCompacted:                                           true,
		rpctypes.ErrNoSpace:                                             false,
		rpctypes.ErrPermissionDenied:                                    false,
		rpctypes.ErrRequestTooLarge:                                     false,
		permanent{errors.New("damaged")}:                                false,
		fmt.Errorf("new: %w", protocol.ErrVersion):                      false,
		errClosed: false,
	} {
		if got := isTemporary(err); got != want {
			t.Errorf("isTemporary(%v) = %t, want %t", err, got, want)
		}
	}
}
