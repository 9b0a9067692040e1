package fleet

import "errors"

// A Fault classifies why a store failed, for programs that react to it or explain it. The
// errors of the stores in x wrap a Fault where they can classify the error:
//
//	if errors.Is(err, fleet.FaultFull) { … }
//
// Faults that may pass without a change of the configuration also wrap
// [github.com/sema-go/sema.ErrUnavailable]. An error that a service (sema://) has sent
// contains only the text, except that a denial is FaultAccess.
type Fault string

const (
	FaultName       Fault = "name resolution" // the host name has no address
	FaultConnection Fault = "connection"      // refused, timed out or unreachable
	FaultTLS        Fault = "TLS"             // one side uses it and the other does not, or the certificate was rejected
	FaultAccess     Fault = "authentication"  // user, password or token was rejected, or lacks a right
	FaultFull       Fault = "full"            // no space left: disk, memory or quota
	FaultReadOnly   Fault = "read-only"       // a replica or standby, or a server that was set to read-only
	FaultSettings   Fault = "settings"        // the setup of the server may lose permits
)

// Error implements error.
func (f Fault) Error() string { return string(f) }

// FaultOf returns the fault that err wraps, or "".
func FaultOf(err error) (f Fault) {
	errors.As(err, &f)
	return f
}
