//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// A server is a process of `sema serve`.
type server struct {
	*storetest.Process
	address string
}

// buildServer builds the program and returns its path.
func buildServer(s *storetest.Scope) string {
	program := filepath.Join(storetest.Directory(s, ""), "sema")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/sema-go/sema/cmd/sema").CombinedOutput(); err != nil {
		s.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// serve starts a server over a store and waits until /readyz reports that it is
// ready.
func serve(s *storetest.Scope, program, store string) *server {
	return storetest.Launch(s, func() *server {
		at := storetest.Loopback(storetest.Port(s))
		return &server{address: at, Process: storetest.NewProcess(s, storetest.Program{
			Path: program, Args: []string{"serve", "--listen", at, "--store", store, "--grace", "1s"}, Dir: storetest.Directory(s, ""),
			Ready: func(int) error {
				response, err := http.Get("http://" + at + "/readyz")
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if response.StatusCode != http.StatusOK {
					return fmt.Errorf("/readyz: %s", response.Status)
				}
				return nil
			},
		})}
	})
}

// startEmbedded starts a server that stores its permits in a file.
func startEmbedded(s *storetest.Scope, ttl time.Duration) target {
	one := serve(s, buildServer(s), "sqlite://"+filepath.Join(storetest.Directory(s, ""), "sema.db"))
	net := storetest.NewProxy(s, one.address)
	return target{
		url: "sema://" + net.Address, api: net.Address, direct: "sema://" + one.address,
		faults: slices.Concat(netFaults(net, ttl), processFaults("the server", one.Process, ttl)),
	}
}

// startService starts three servers over one Redis. Clients know all three.
func startService(s *storetest.Scope, ttl time.Duration) target {
	redis := redistest.Start(s, "--appendonly", "yes", "--appendfsync", "always")
	program := buildServer(s)
	var servers []*server
	var addresses []string
	var faults []fault
	for i := range 3 {
		one := serve(s, program, redis.URL())
		servers = append(servers, one)
		at := one.address
		if i == 0 { // one of them through a proxy
			net := storetest.NewProxy(s, one.address)
			at = net.Address
			faults = append(faults, netFaults(net, ttl)...)
		}
		addresses = append(addresses, at)
		faults = append(faults, processFaults(fmt.Sprintf("server %d of 3", i+1), one.Process, ttl)...)
	}
	all := func(do func(*storetest.Process)) func() {
		return func() {
			for _, one := range servers {
				do(one.Process)
			}
		}
	}
	faults = append(faults, fault{"all servers are killed", all((*storetest.Process).Kill), all(func(p *storetest.Process) { must(p.Start()) }), ttl / 6})
	return target{
		url: "sema://" + strings.Join(addresses, ","), api: strings.Join(addresses, ","), direct: redis.URL(),
		faults: append(faults, processFaults("Redis", redis.Process, ttl)...),
	}
}
