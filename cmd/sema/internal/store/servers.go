package store

import (
	"net"
	"strings"
)

// A Server is the address of a server of a store, as [net.Dial] takes it.
type Server struct{ Network, Address string }

// ports maps schemes to their default ports; "" if there is none.
var ports = map[string]string{"redis": "6379", "rediss": "6379", "postgres": "5432", "postgresql": "5432", "etcd": "2379", "sema": "", "semas": ""}

// Servers returns the servers in the URL, nil for a store without a server.
func (u URL) Servers() (all []Server) {
	port, ok := ports[u.Scheme()]
	if !ok {
		return nil
	}
	q := u.parsed.Query()
	if q.Get("sentinel") != "" {
		port = "26379"
	}
	names, portsAt := strings.Split(u.parsed.Host, ","), strings.Split(q.Get("port"), ",")
	if hosts := q.Get("host"); hosts != "" && u.IsPostgres() {
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
			all = append(all, Server{"unix", name + "/.s.PGSQL." + port})
		case name != "" && (port != "" || hasPort(name)):
			all = append(all, Server{"tcp", withPort(name, port)})
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
