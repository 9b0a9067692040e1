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

// sentinels are the errors that callers branch on. The first that an error is
// gives it its code.
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

// FaultOf is the error to answer with. One that has a code already is left as it
// is.
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

// ReadFault is what the other end has said, with the errors that it is, if it was
// an answer by [FaultOf].
func ReadFault(err error) (fault *Fault, answered bool) {
	var coded *connect.Error
	if !errors.As(err, &coded) || !connect.IsWireError(err) {
		return nil, false
	}
	for _, detail := range coded.Details() {
		value, err := detail.Value()
		said, ok := value.(*semav1.Fault)
		if err != nil || !ok {
			continue
		}
		fault := &Fault{Text: coded.Message()}
		for _, reason := range said.Reasons {
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

// A Fault is an error of the other end.
type Fault struct {
	Text   string
	Errors []error // which it is, for errors.Is
}

func (f *Fault) Error() string   { return f.Text }
func (f *Fault) Unwrap() []error { return f.Errors }
