package grpcadmit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/admit"
)

// StatusOf returns the status of a call that was not admitted.
func StatusOf(err error) *status.Status {
	r := admit.RejectionOf(err)
	switch {
	case r != nil:
		return rejected(r)
	case errors.Is(err, sema.ErrInvalid):
		return status.New(codes.Internal, "the call could not be classified")
	case errors.Is(err, context.DeadlineExceeded):
		return status.New(codes.DeadlineExceeded, "the deadline passed before the call was admitted")
	case errors.Is(err, context.Canceled):
		return status.New(codes.Canceled, "the call was cancelled before it was admitted")
	}
	return status.New(codes.Unavailable, "the service cannot process the call now")
}

func rejected(r *admit.Rejection) *status.Status {
	code := codes.Unavailable
	if admit.StatusOf(r.Reason) == http.StatusTooManyRequests {
		code = codes.ResourceExhausted
	}
	s := status.New(code, r.Err.Error())
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: r.Reason.String(), Domain: "sema"},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(admit.RetryAfter(r.RetryAfter)) * time.Second)},
	}
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s
}
