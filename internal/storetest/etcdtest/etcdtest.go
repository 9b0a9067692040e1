// Package etcdtest starts etcd: one server, or a cluster whose members can be cut
// off from each other. See package storetest.
package etcdtest

import (
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

// packages contain etcd and etcdctl.
const packages = "etcd-server etcd-client"

// Shared is for tests that use keys of their own.
var Shared = storetest.Shared[*Cluster]{
	Variable: "SEMA_TEST_ETCD_URL",
	Start:    func(t storetest.TB) *Cluster { return Start(t, 1) },
}

// A Cluster is one or more servers that form an etcd cluster.
type Cluster struct {
	Nodes []*Node

	tb        storetest.TB
	authority *storetest.Authority // nil: no TLS
}

// Start starts a cluster of nodes servers and waits until they are ready. Each
// server gets the flags, as on the command line.
func Start(t storetest.TB, nodes int, flags ...string) *Cluster {
	t.Helper()
	program := storetest.Need(t, "etcd", packages)
	return storetest.Launch(t, func() *Cluster { return newCluster(t, program, nodes, nil, flags) })
}

// StartTLS starts one server that accepts only clients with a certificate of
// the authority.
func StartTLS(t storetest.TB, authority *storetest.Authority, flags ...string) *Cluster {
	t.Helper()
	program := storetest.Need(t, "etcd", packages)
	return storetest.Launch(t, func() *Cluster { return newCluster(t, program, 1, authority, flags) })
}

func newCluster(t storetest.TB, program string, nodes int, authority *storetest.Authority, flags []string) *Cluster {
	t.Helper()
	c := &Cluster{tb: t, authority: authority}
	scheme, secure := "http", (*tls.Config)(nil)
	if authority != nil {
		scheme, secure = "https", authority.Client(t)
		cert, key := authority.Issue(t, "server")
		flags = append([]string{"--cert-file", cert, "--key-file", key, "--trusted-ca-file", authority.File, "--client-cert-auth"}, flags...)
	}
	directory, id := storetest.Directory(t, ""), rand.Uint64()
	arguments := make([][]string, nodes)
	var members []string
	for i := range nodes {
		n := &Node{tb: t, cluster: c, name: fmt.Sprintf("node%d-%016x", i, id), Address: storetest.Loopback(storetest.Port(t)), scheme: scheme, secure: secure}
		listens := storetest.Loopback(storetest.Port(t))
		n.peers = storetest.NewSourceProxy(t, listens, sender)
		members = append(members, n.name+"=http://"+n.peers.Address)
		arguments[i] = append([]string{
			"--name", n.name, "--data-dir", filepath.Join(directory, n.name), "--logger", "zap", "--log-level", "warn",
			"--listen-client-urls", scheme + "://" + n.Address, "--advertise-client-urls", scheme + "://" + n.Address,
			"--listen-peer-urls", "http://" + listens, "--initial-advertise-peer-urls", "http://" + n.peers.Address,
		}, flags...)
		c.Nodes = append(c.Nodes, n)
	}
	for i, n := range c.Nodes {
		n.Process = storetest.NewProcess(t, storetest.Program{
			Path: program, Args: append(arguments[i], "--initial-cluster", strings.Join(members, ",")), Dir: directory,
			Env:   []string{"ETCD_UNSUPPORTED_ARCH=arm64"}, // which some builds require and others ignore
			Ready: func(int) error { return n.checkReady() },
		})
	}
	return c
}

// Start starts all servers that are not running, and waits until they are
// ready.
func (c *Cluster) Start() error {
	failures := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		wg.Go(func() { failures[i] = n.Start() })
	}
	wg.Wait()
	return errors.Join(failures...)
}

// Addresses returns the client addresses of the servers.
func (c *Cluster) Addresses() (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Address)
	}
	return all
}

// For implements the interface of [storetest.Shared].
func (c *Cluster) For(t storetest.TB) *Cluster {
	shared := *c
	shared.tb = t
	return &shared
}

// URL returns the URL for fleet.Open.
func (c *Cluster) URL() string {
	u := "etcd://" + strings.Join(c.Addresses(), ",") + "/"
	if c.authority != nil {
		cert, key := c.authority.Issue(c.tb, "url")
		u += "?ca=" + c.authority.File + "&cert=" + cert + "&key=" + key
	}
	return u
}

// Leader waits until a server leads and returns it. It ignores isolated
// servers.
func (c *Cluster) Leader() *Node {
	c.tb.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, n := range c.Nodes {
			if n.Runs() && n.isolatedAs == "" && n.leads() {
				return n
			}
		}
	}
	c.tb.Fatalf("no leader was elected within a minute")
	panic("not reached")
}

// Followers returns all servers but the leader.
func (c *Cluster) Followers() []*Node {
	c.tb.Helper()
	leader := c.Leader()
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Node) bool { return n == leader })
}

// Etcdctl runs etcdctl against any of the servers and returns its output.
func (c *Cluster) Etcdctl(args ...string) string {
	c.tb.Helper()
	return c.etcdctl(c.Addresses(), args)
}

// Compact deletes all old revisions of all keys.
func (c *Cluster) Compact() {
	c.tb.Helper()
	fields := strings.Fields(c.Leader().Etcdctl("get", "x", "-w", "fields"))
	i := slices.Index(fields, `"Revision"`)
	if i < 0 || i+2 >= len(fields) {
		c.tb.Fatalf("no revision in %q", fields)
	}
	c.Leader().Etcdctl("compact", fields[i+2])
}

func (c *Cluster) etcdctl(addresses, args []string) string {
	c.tb.Helper()
	out, err := c.tryEtcdctl(addresses, args)
	if err != nil {
		c.tb.Fatalf("etcdctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// TryEtcdctl runs etcdctl against any of the servers and returns its output and
// its error.
func (c *Cluster) TryEtcdctl(args ...string) (string, error) {
	c.tb.Helper()
	return c.tryEtcdctl(c.Addresses(), args)
}

func (c *Cluster) tryEtcdctl(addresses, args []string) (string, error) {
	c.tb.Helper()
	program := storetest.Need(c.tb, "etcdctl", packages)
	flags := []string{"--endpoints", strings.Join(addresses, ",")}
	if c.authority != nil {
		cert, key := c.authority.Issue(c.tb, "etcdctl")
		flags = []string{"--endpoints", "https://" + strings.Join(addresses, ",https://"), "--cacert", c.authority.File, "--cert", cert, "--key", key}
	}
	cmd := exec.Command(program, append(flags, args...)...)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
