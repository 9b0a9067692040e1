package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/x/internal/netfault"
)

var errClosed = errors.New("the store is closed")

// isReply reports whether an error is an error reply of Redis that begins with kind. The
// client library removes a leading ERR.
func isReply(err error, kind string) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(reply.Error(), kind)
}

// isTransient reports whether the server rejects requests only temporarily.
func isTransient(err error) bool {
	for _, kind := range []string{"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY"} {
		if isReply(err, kind) {
			return true
		}
	}
	return false
}

// advice lists the error replies of Redis: the fault that each indicates and what to do
// about it.
var advice = []struct {
	kind      string
	fault     fleet.Fault // "": none
	transient bool        // the error may end without a change of this program's settings
	text      string
}{
	{"LOADING", "", true, "it is loading its data"},
	{"READONLY", fleet.FaultReadOnly, true, "it is a replica; use the address of the primary, or sentinel="},
	{"MASTERDOWN", fleet.FaultReadOnly, true, "it is a replica, and its primary is down"},
	{"NOREPLICAS", "", true, "it has fewer replicas than min-replicas-to-write requires; check that they are running"},
	{"CLUSTERDOWN", "", true, "part of the cluster is down"},
	{"OOM", fleet.FaultFull, true, "it is out of memory, see maxmemory"},
	{"MISCONF", fleet.FaultFull, true, "it cannot write to its disk; free space on it, or check it for errors"},
	{"WRONGPASS", fleet.FaultAccess, false, "unknown user or wrong password"},
	{"NOAUTH", fleet.FaultAccess, false, "it requires a password: redis://user:password@host"},
	{"NOPERM", fleet.FaultAccess, false, "the user lacks a permission; see the package's documentation for those that it needs"},
	{"MOVED", "", false, "it is a cluster; use cluster=1"},
	{"BUSY", "", true, "it is busy with a script or function of another client"},
}

// settingNames are the names of the TLS settings in URLs, for error messages.
var settingNames = netfault.SettingNames{Plain: "use redis://", Secure: "use rediss://", CA: "ca=", Cert: "cert= and key=", Name: "name it with server_name="}

// explain adds the address of the server to an error, and the reason if it is known, before
// the reply of the server. It wraps a transient error in [sema.ErrUnavailable] as well.
func explain(ctx context.Context, address string, err error) error {
	for _, a := range advice {
		if !isReply(err, a.kind) {
			continue
		}
		if a.fault != "" {
			err = &netfault.Error{Fault: a.fault, Text: err.Error(), Cause: err}
		}
		if a.transient {
			return fmt.Errorf("%w: redis at %s: %s (reply: %w)", sema.ErrUnavailable, address, a.text, err)
		}
		return fmt.Errorf("redis at %s: %s (reply: %w)", address, a.text, err)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redis at %s did not reply in time: %w", address, context.Cause(ctx))
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return fmt.Errorf("redis at %s: %w", address, errClosed)
	}
	if why := netfault.Explain(err, settingNames, false); why != nil {
		return unreachable(address, why)
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() { // of this package, not of the caller
		why := &netfault.Error{Fault: fleet.FaultConnection, Text: "it accepts connections, but did not reply in time; check that it is not stopped or overloaded", Cause: err}
		return unreachable(address, why)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w: cannot reach redis at %s: %w", sema.ErrUnavailable, address, op.Err)
	}
	return fmt.Errorf("redis at %s: %w", address, err)
}

func unreachable(address string, why *netfault.Error) error {
	return fmt.Errorf("%w: cannot reach redis at %s: %w", sema.ErrUnavailable, address, why)
}

// diagnosisTimeout bounds the second connection that explainDial makes.
const diagnosisTimeout = 2 * time.Second

// explainDial explains why a connection failed. If the error does not contain the
// reason, because a server without TLS waits for more input, explainDial connects again
// to find it.
func explainDial(ctx context.Context, o Options, addresses []string, err error) error {
	at := strings.Join(addresses, ",")
	hasCert := o.TLS != nil && (len(o.TLS.Certificates) > 0 || o.TLS.GetClientCertificate != nil)
	if _, replied := rueidis.IsRedisErr(err); replied {
		return explain(ctx, at, err)
	}
	why := netfault.Explain(err, settingNames, hasCert)
	if why == nil || why.Fault == fleet.FaultConnection && !errors.Is(err, syscall.ECONNREFUSED) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
		defer cancel()
		if found := netfault.Explain(netfault.Probe(within, netfault.Target{Address: addresses[0], TLS: o.TLS, Hello: "PING\r\n"}), settingNames, hasCert); found != nil {
			why = found
		}
	}
	if why == nil {
		return explain(ctx, at, err)
	}
	return unreachable(at, why)
}
