package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/sema-go/sema/cmd/sema/internal/figure"
	"github.com/sema-go/sema/fleet"
)

// An address is where a server of the engine is.
type address struct{ network, at string }

// ports are the usual ones; "" where there is none.
var ports = map[string]string{"redis": "6379", "rediss": "6379", "postgres": "5432", "postgresql": "5432", "etcd": "2379", "sema": "", "semas": ""}

// addressesOf are those that a URL names; none for engines without a server.
func addressesOf(u *url.URL) (all []address) {
	port, ok := ports[u.Scheme]
	if !ok {
		return nil
	}
	q := u.Query()
	if q.Get("sentinel") != "" {
		port = "26379"
	}
	names, portsAt := strings.Split(u.Host, ","), strings.Split(q.Get("port"), ",")
	if hosts := q.Get("host"); hosts != "" && strings.HasPrefix(u.Scheme, "postgres") {
		names = strings.Split(hosts, ",")
	}
	for _, key := range []string{"addrs", "endpoints"} {
		if more := q.Get(key); more != "" {
			names = append(names, strings.Split(more, ",")...)
		}
	}
	for i, name := range names {
		if own := portsAt[min(i, len(portsAt)-1)]; own != "" {
			port = own
		}
		switch name = strings.TrimSpace(name); {
		case strings.HasPrefix(name, "/"):
			all = append(all, address{"unix", name + "/.s.PGSQL." + port})
		case name != "" && (port != "" || hasPort(name)):
			all = append(all, address{"tcp", withPort(name, port)})
		}
	}
	return all
}

func hasPort(name string) bool {
	_, _, err := net.SplitHostPort(name)
	return err == nil
}

func withPort(name, port string) string {
	if hasPort(name) {
		return name
	}
	return net.JoinHostPort(strings.Trim(name, "[]"), port)
}

// connectPatience is how long a server has to accept a connection.
const connectPatience = 3 * time.Second

// reach goes the way to each server, step by step, so that it can be said at which
// one it ends. One of several is enough to go on.
func reach(ctx context.Context, r *report, all []address) bool {
	reached := len(all) == 0
	var steps []fleet.Finding
	for _, a := range all {
		found, ok := a.reach(ctx)
		steps = append(steps, found...)
		reached = reached || ok
	}
	for i := range steps {
		if reached && steps[i].Level == fleet.Problem {
			steps[i].Level = fleet.Warning // others are there
		}
	}
	r.add(steps...)
	return reached
}

func (a address) reach(ctx context.Context) (steps []fleet.Finding, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	name, _, _ := net.SplitHostPort(a.at)
	if a.network == "tcp" && net.ParseIP(name) == nil {
		start := time.Now()
		found, err := net.DefaultResolver.LookupHost(ctx, name)
		if err != nil {
			return []fleet.Finding{{Check: "resolve", Level: fleet.Problem, Seen: fmt.Sprintf("host %q has no address: %s", name, reasonOf(err)),
				Advice: fmt.Sprintf("check its spelling, and how names are resolved here: getent hosts %s", name)}}, false
		}
		steps = append(steps, fleet.Finding{Check: "resolve", Level: fleet.Fine, Seen: fmt.Sprintf("%s is %s, after %v", name, strings.Join(found, ", "), figure.Short(time.Since(start)))})
	}
	start := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, a.network, a.at)
	if err != nil {
		return append(steps, fleet.Finding{Check: "connect", Level: fleet.Problem, Seen: fmt.Sprintf("%s: %s", a.at, reasonOf(err)), Advice: connectAdvice(err)}), false
	}
	conn.Close()
	return append(steps, fleet.Finding{Check: "connect", Level: fleet.Fine, Seen: fmt.Sprintf("%s, after %v", a.at, figure.Short(time.Since(start)))}), true
}

// reasonOf is an error of the network's without what is said already.
func reasonOf(err error) string {
	var op *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
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
		return "the machine is there and nobody listens at the port: is the server running, at this port, and for others than itself (bind, listen_addresses)?"
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such socket: is the server running?"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "there is no way to it: check the address, and the routes of this machine"
	}
	return "check the address, and the firewalls on the way"
}
