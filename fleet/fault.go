package fleet

import "errors"

// A Fault classifies why a store failed, for programs that react to it or explain
// it. The errors of the stores in x wrap one where they can tell:
//
//	if errors.Is(err, fleet.FaultFull) { … }
//
// Faults that may pass without a change of the configuration come with
// [github.com/sema-go/sema.ErrUnavailable] too. An error that was sent by a
// service (sema://) has its text only.
type Fault string

const (
	FaultName       Fault = "name resolution" // the host name has no address
	FaultConnection Fault = "connection"      // refused, timed out or unreachable
	FaultTLS        Fault = "TLS"             // one side uses it and the other does not, or a certificate was rejected
	FaultAccess     Fault = "authentication"  // user, password or token were rejected, or lack a right
	FaultFull       Fault = "full"            // no room left: disk, memory or quota
	FaultReadOnly   Fault = "read-only"       // a replica or standby, or a server that was set to read-only
	FaultSettings   Fault = "settings"        // the server is set up so that permits may be lost
)

// Error implements error.
func (f Fault) Error() string { return string(f) }

// FaultOf returns the fault that an error wraps, or "".
func FaultOf(err error) (f Fault) {
	errors.As(err, &f)
	return f
}
