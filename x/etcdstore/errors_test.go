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

// TestWhichErrorsPass: those are tried again, by who does not know what became of
// its attempt; others are told at once.
func TestWhichErrorsPass(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		context.DeadlineExceeded:                                        true,
		status.Error(codes.Unknown, "context deadline exceeded"):        true, // as servers say it that are busy
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
		if got := passes(err); got != want {
			t.Errorf("%v passes: %t, want %t", err, got, want)
		}
	}
}
