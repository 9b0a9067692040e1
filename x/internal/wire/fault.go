package wire

import (
	"context"
	"errors"
	"io/fs"

	"connectrpc.com/connect"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/semav1"
)

// sentinels are the errors that callers branch on. The code of an error is that of the
// first sentinel it matches.
var sentinels = []struct {
	err    error
	reason semav1.Reason
	code   connect.Code
}{
	{fs.ErrNotExist, semav1.Reason_REASON_NOT_EXIST, connect.CodeNotFound},
	{protocol.ErrConflict, semav1.Reason_REASON_CONFLICT, connect.CodeAborted},
	{protocol.ErrVersion, semav1.Reason_REASON_VERSION, connect.CodeFailedPrecondition},
	{sema.ErrInvalid, semav1.Reason_REASON_INVALID, connect.CodeInvalidArgument},
	{errors.ErrUnsupported, semav1.Reason_REASON_UNSUPPORTED, connect.CodeUnimplemented},
	{fs.ErrPermission, semav1.Reason_REASON_PERMISSION, connect.CodePermissionDenied},
	{sema.ErrQueueFull, semav1.Reason_REASON_QUEUE_FULL, connect.CodeResourceExhausted},
	{sema.ErrFull, semav1.Reason_REASON_FULL, connect.CodeResourceExhausted},
	{sema.ErrTimeout, semav1.Reason_REASON_TIMEOUT, connect.CodeDeadlineExceeded},
	{sema.ErrTooLarge, semav1.Reason_REASON_TOO_LARGE, connect.CodeFailedPrecondition},
	{sema.ErrLost, semav1.Reason_REASON_LOST, connect.CodeFailedPrecondition},
	{sema.ErrDraining, semav1.Reason_REASON_DRAINING, connect.CodeUnavailable},
	{sema.ErrClosed, semav1.Reason_REASON_CLOSED, connect.CodeUnavailable},
	{sema.ErrUnavailable, semav1.Reason_REASON_UNAVAILABLE, connect.CodeUnavailable},
	{context.DeadlineExceeded, 0, connect.CodeDeadlineExceeded},
	{context.Canceled, 0, connect.CodeCanceled},
}

// FaultOf returns the error to reply with. It returns an error that already has a code
// unchanged.
func FaultOf(err error) error {
	var coded *connect.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	code, fault := connect.CodeUnknown, &semav1.Fault{}
	for _, s := range sentinels {
		if !errors.Is(err, s.err) {
			continue
		}
		if code == connect.CodeUnknown {
			code = s.code
		}
		if s.reason != 0 {
			fault.Reasons = append(fault.Reasons, s.reason)
		}
	}
	coded = connect.NewError(code, err)
	if detail, err := connect.NewErrorDetail(fault); err == nil {
		coded.AddDetail(detail)
	}
	return coded
}

// ReadFault returns the error that the server has sent with [FaultOf], with the sentinels
// that it matches. It returns false for other errors.
func ReadFault(err error) (fault *Fault, ok bool) {
	var coded *connect.Error
	if !errors.As(err, &coded) || !connect.IsWireError(err) {
		return nil, false
	}
	for _, detail := range coded.Details() {
		value, err := detail.Value()
		sent, ok := value.(*semav1.Fault)
		if err != nil || !ok {
			continue
		}
		fault := &Fault{Text: coded.Message()}
		for _, reason := range sent.Reasons {
			for _, s := range sentinels {
				if s.reason == reason {
					fault.Errors = append(fault.Errors, s.err)
				}
			}
		}
		for _, s := range sentinels {
			if s.reason == 0 && s.code == coded.Code() {
				fault.Errors = append(fault.Errors, s.err)
			}
		}
		return fault, true
	}
	return nil, false
}

// A Fault is an error that the server has sent.
type Fault struct {
	Text   string
	Errors []error // sentinels that it matches with errors.Is
}

// Error implements error.
func (f *Fault) Error() string { return f.Text }

// Unwrap returns the sentinels, for [errors.Is].
func (f *Fault) Unwrap() []error { return f.Errors }
