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

// says reports whether an error is a reply of Redis that begins with kind. (The client
// removes a leading ERR.)
func says(err error, kind string) bool {
	reply, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(reply.Error(), kind)
}

// passing reports whether the server rejects requests for a moment only.
func passing(err error) bool {
	for _, kind := range []string{"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY"} {
		if says(err, kind) {
			return true
		}
	}
	return false
}

// advice is what to do about an error of Redis, and what kind of fault it is.
var advice = []struct {
	kind  string
	fault fleet.Fault // "": none
	again bool        // it may pass without a change of this program's settings
	text  string
}{
	{"LOADING", "", true, "it is reading its data and will serve soon"},
	{"READONLY", fleet.FaultReadOnly, true, "it is a replica; give the address of the primary, or use sentinel="},
	{"MASTERDOWN", fleet.FaultReadOnly, true, "it is a replica, and its primary is down"},
	{"NOREPLICAS", "", true, "it has too few replicas to be safe, see min-replicas-to-write; are they running?"},
	{"CLUSTERDOWN", "", true, "part of the cluster is down"},
	{"OOM", fleet.FaultFull, true, "it is out of memory, see maxmemory"},
	{"MISCONF", fleet.FaultFull, true, "it cannot write to its disk; make room there, or look at it"},
	{"WRONGPASS", fleet.FaultAccess, false, "it does not know that user and password"},
	{"NOAUTH", fleet.FaultAccess, false, "it wants a password: redis://user:password@host"},
	{"NOPERM", fleet.FaultAccess, false, "the user may not do this; see the package's documentation for what it has to be allowed"},
	{"MOVED", "", false, "it is a cluster; use cluster=1"},
	{"BUSY", "", true, "a script or function of somebody's keeps it busy"},
}

// words are the parameters of URLs for TLS.
var words = netfault.Words{Plain: "use redis://", Secure: "use rediss://", CA: "ca=", Cert: "cert= and key=", Name: "name it with server_name="}

// explain adds to an error which server it is from, and what can be done about it. An
// error that may pass is [sema.ErrUnavailable], too.
func explain(ctx context.Context, address string, err error) error {
	for _, a := range advice {
		if !says(err, a.kind) {
			continue
		}
		if a.fault != "" {
			err = &netfault.Error{Fault: a.fault, Text: err.Error(), Cause: err}
		}
		if a.again {
			return fmt.Errorf("%w: redis at %s: %w: %s", sema.ErrUnavailable, address, err, a.text)
		}
		return fmt.Errorf("redis at %s: %w: %s", address, err, a.text)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("redis at %s did not answer in time: %w", address, context.Cause(ctx))
	}
	if errors.Is(err, rueidis.ErrClosing) {
		return fmt.Errorf("redis at %s: %w", address, errClosed)
	}
	if why := netfault.Explain(err, words, false); why != nil {
		return unreached(address, why)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("%w: cannot reach redis at %s: %w; is it running?", sema.ErrUnavailable, address, op.Err)
	}
	return fmt.Errorf("redis at %s: %w", address, err)
}

func unreached(address string, why *netfault.Error) error {
	return fmt.Errorf("%w: cannot reach redis at %s: %w", sema.ErrUnavailable, address, why)
}

// diagnosisTimeout bounds how long explainDial connects again to find out more.
const diagnosisTimeout = 2 * time.Second

// explainDial explains why a connection failed. If the error does not contain the
// reason, because a server without TLS waits for more input, it connects again.
func explainDial(ctx context.Context, o Options, addresses []string, err error) error {
	at := strings.Join(addresses, ",")
	hasCert := o.TLS != nil && (len(o.TLS.Certificates) > 0 || o.TLS.GetClientCertificate != nil)
	if _, replied := rueidis.IsRedisErr(err); replied {
		return explain(ctx, at, err)
	}
	why := netfault.Explain(err, words, hasCert)
	if why == nil || why.Fault == fleet.FaultConnection && !errors.Is(err, syscall.ECONNREFUSED) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTimeout)
		defer cancel()
		if found := netfault.Explain(netfault.Probe(within, netfault.Target{Address: addresses[0], TLS: o.TLS, Hello: "PING\r\n"}), words, hasCert); found != nil {
			why = found
		}
	}
	if why == nil {
		return explain(ctx, at, err)
	}
	return unreached(at, why)
}
