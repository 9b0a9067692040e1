package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/rueidis"
)

var errClosed = errors.New("the store is closed")

// says reports whether an error is one of Redis's own, and begins so. (The
// client takes away a leading ERR.)
func says(err error, kind string) bool {
	said, ok := rueidis.IsRedisErr(err)
	return ok && strings.HasPrefix(said.Error(), kind)
}

// passing reports whether the server has refused and will not do so for long.
func passing(err error) bool {
	for _, kind := range []string{"LOADING", "READONLY", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY"} {
		if says(err, kind) {
			return true
		}
	}
	return false
}

// advice is what to do about what Redis says.
var advice = []struct{ kind, text string }{
	{"LOADING", "it is reading its data and will serve soon"},
	{"READONLY", "it is a replica; give the address of the primary, or use sentinel="},
	{"NOREPLICAS", "it has too few replicas to be safe, see min-replicas-to-write; are they running?"},
	{"CLUSTERDOWN", "part of the cluster is down"},
	{"OOM", "it is out of memory, see maxmemory"},
	{"MISCONF", "it cannot write to its disk"},
	{"WRONGPASS", "it does not know that user and password"},
	{"NOAUTH", "it wants a password: redis://user:password@host"},
	{"NOPERM", "the user may not do this; see the package's documentation for what it has to be allowed"},
	{"MOVED", "it is a cluster; use cluster=1"},
	{"BUSY", "a script or function of somebody's keeps it busy"},
}

// explain says which server an error is from, and what can be done about it.
func explain(ctx context.Context, address string, err error) error {
	for _, a := range advice {
		if says(err, a.kind) {
			return fmt.Errorf("redis at %s: %w: %s", address, err, a.text)
		}
	}
	var op *net.OpError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("redis at %s did not answer in time: %w", address, context.Cause(ctx))
	case errors.Is(err, rueidis.ErrClosing):
		return fmt.Errorf("redis at %s: %w", address, errClosed)
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("cannot reach redis at %s: %w; is it running?", address, op.Err)
	}
	return fmt.Errorf("redis at %s: %w", address, err)
}
