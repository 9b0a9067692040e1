package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
)

// connectTimeout bounds one connection.
const connectTimeout = 3 * time.Second

// reach connects to each server step by step, and reports the step that fails. One reachable
// server is enough to continue.
func reach(ctx context.Context, r *report, all []store.Server) bool {
	reached := len(all) == 0
	var steps []fleet.Finding
	for _, a := range all {
		found, ok := reachServer(ctx, a)
		steps = append(steps, found...)
		reached = reached || ok
	}
	for i := range steps {
		if reached && steps[i].Level == fleet.LevelProblem {
			steps[i].Level = fleet.LevelWarning // another server was reached
		}
	}
	r.add(steps...)
	return reached
}

func reachServer(ctx context.Context, a store.Server) (steps []fleet.Finding, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	name, _, _ := net.SplitHostPort(a.Address)
	if a.Network == "tcp" && net.ParseIP(name) == nil {
		start := time.Now()
		found, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return []fleet.Finding{{Check: "resolve", Level: fleet.LevelProblem, Seen: fmt.Sprintf("host %q has no address: %s", name, reasonOf(err)),
				Advice: fmt.Sprintf("check its spelling, and how names are resolved here: getent hosts %s", name)}}, false
		}
		steps = append(steps, fleet.Finding{Check: "resolve", Level: fleet.LevelOK, Seen: fmt.Sprintf("%s is %s, after %v", name, strings.Join(found, ", "), figure.Short(time.Since(start)))})
	}
	start := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, a.Network, a.Address)
	if err != nil {
		return append(steps, fleet.Finding{Check: "connect", Level: fleet.LevelProblem, Seen: fmt.Sprintf("%s: %s", a.Address, reasonOf(err)), Advice: connectAdvice(err)}), false
	}
	conn.Close()
	return append(steps, fleet.Finding{Check: "connect", Level: fleet.LevelOK, Seen: fmt.Sprintf("%s, after %v", a.Address, figure.Short(time.Since(start)))}), true
}

// reasonOf returns the reason of a network error, without the address.
func reasonOf(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return "no reply in time"
	case errors.As(err, &dns):
		return dns.Err
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}

func connectAdvice(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "no program listens on the port: check that the server runs, uses this port, and accepts connections from other machines (bind, listen_addresses)"
	case errors.Is(err, fs.ErrNotExist):
		return "no such socket: check that the server is running"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the server: check the address, and the routes of this machine"
	}
	return "check the address, and the firewalls on the way"
}
