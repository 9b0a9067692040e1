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

	"github.com/sema-go/sema/internal/enginetest"
	"github.com/sema-go/sema/internal/enginetest/redistest"
)

// A server is a `sema serve`.
type server struct {
	*enginetest.Process
	address string
}

// buildServer makes the program.
func buildServer(s *enginetest.Scope) string {
	program := filepath.Join(enginetest.Directory(s, ""), "sema")
	if out, err := exec.Command("go", "build", "-o", program, "github.com/sema-go/sema/cmd/sema").CombinedOutput(); err != nil {
		s.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// serve starts one over a store, which is ready when it says so.
func serve(s *enginetest.Scope, program, store string) *server {
	return enginetest.Launch(s, func() *server {
		at := enginetest.Loopback(enginetest.Port(s))
		return &server{address: at, Process: enginetest.NewProcess(s, enginetest.Program{
			Path: program, Args: []string{"serve", "--listen", at, "--store", store, "--grace", "1s"}, Dir: enginetest.Directory(s, ""),
			Answers: func(int) error {
				response, err := http.Get("http://" + at + "/readyz")
				if err != nil {
					return err
				}
				defer response.Body.Close()
				if response.StatusCode != http.StatusOK {
					return fmt.Errorf("/readyz says %s", response.Status)
				}
				return nil
			},
		})}
	})
}

// startEmbedded is a server that keeps its permits in a file.
func startEmbedded(s *enginetest.Scope, ttl time.Duration) target {
	one := serve(s, buildServer(s), "sqlite://"+filepath.Join(enginetest.Directory(s, ""), "sema.db"))
	net := enginetest.NewProxy(s, one.address)
	return target{
		url: "sema://" + net.Address, api: net.Address, direct: "sema://" + one.address,
		faults: slices.Concat(netFaults(net, ttl), processFaults("the server", one.Process, ttl)),
	}
}

// startService is three servers over one Redis. Clients know all three.
func startService(s *enginetest.Scope, ttl time.Duration) target {
	redis := redistest.Start(s, "--appendonly", "yes", "--appendfsync", "always")
	program := buildServer(s)
	var servers []*server
	var addresses []string
	var faults []fault
	for i := range 3 {
		one := serve(s, program, redis.URL())
		servers = append(servers, one)
		at := one.address
		if i == 0 { // one of them by way of a network
			net := enginetest.NewProxy(s, one.address)
			at = net.Address
			faults = append(faults, netFaults(net, ttl)...)
		}
		addresses = append(addresses, at)
		faults = append(faults, processFaults(fmt.Sprintf("server %d of 3", i+1), one.Process, ttl)...)
	}
	all := func(do func(*enginetest.Process)) func() {
		return func() {
			for _, one := range servers {
				do(one.Process)
			}
		}
	}
	faults = append(faults, fault{"all servers are killed", all((*enginetest.Process).Kill), all(func(p *enginetest.Process) { must(p.Start()) }), ttl / 6})
	return target{
		url: "sema://" + strings.Join(addresses, ","), api: strings.Join(addresses, ","), direct: redis.URL(),
		faults: append(faults, processFaults("Redis", redis.Process, ttl)...),
	}
}
