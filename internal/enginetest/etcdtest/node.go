package etcdtest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

// A Node is one server.
type Node struct {
	*enginetest.Process
	Address string // for clients

	tb         enginetest.TB
	cluster    *Cluster
	name       string // which no other server has, of any cluster
	scheme     string
	secure     *tls.Config
	peers      *enginetest.Proxy // by which the other servers reach it
	isolatedAs string            // which member it is to them; "" if it is not cut off
}

// Isolate cuts the server off from the others. Clients still reach it.
func (n *Node) Isolate() {
	n.tb.Helper()
	n.isolatedAs = n.memberID()
	n.peers.SetFault(enginetest.Fault{Refuse: true})
	n.peers.Cut()
	for _, other := range n.cluster.Nodes {
		other.peers.Bar(n.isolatedAs)
	}
}

// Rejoin ends that.
func (n *Node) Rejoin() {
	n.tb.Helper()
	n.peers.Heal()
	for _, other := range n.cluster.Nodes {
		other.peers.Admit(n.isolatedAs)
	}
	n.isolatedAs = ""
}

// Etcdctl runs etcdctl against this server and returns what it says.
func (n *Node) Etcdctl(args ...string) string {
	n.tb.Helper()
	return n.cluster.etcdctl([]string{n.Address}, args)
}

// sender is the member that a request from one server to another comes from.
func sender(hello []byte) string {
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(hello)))
	if err != nil {
		return ""
	}
	return request.Header.Get("X-Server-From")
}

// answers returns nil if the server is well, and this one.
func (n *Node) answers() error {
	var health struct{ Health string }
	if err := n.ask("GET", "/health", &health); err != nil {
		return err
	}
	var list struct{ Members []struct{ Name string } }
	if err := n.ask("POST", "/v3/cluster/member/list", &list); err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.Name == n.name && health.Health == "true" {
			return nil
		}
	}
	return fmt.Errorf("%s: health %s, %s among members %v", n.Address, health.Health, n.name, list.Members)
}

// A status is what a server says of itself, by the gateway that every one has.
type status struct {
	Header struct {
		MemberID string `json:"member_id"`
	}
	Leader string
}

func (n *Node) leads() bool {
	var s status
	return n.ask("POST", "/v3/maintenance/status", &s) == nil && s.Leader != "" && s.Leader == s.Header.MemberID
}

// memberID is as servers write it when they speak to each other.
func (n *Node) memberID() string {
	n.tb.Helper()
	var s status
	err := n.ask("POST", "/v3/maintenance/status", &s)
	id, unread := strconv.ParseUint(s.Header.MemberID, 10, 64)
	if err != nil || unread != nil {
		n.tb.Fatalf("which member %s is: %v, %v", n.Address, err, unread)
	}
	return strconv.FormatUint(id, 16)
}

func (n *Node) ask(method, path string, answer any) error {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: n.secure}}
	request, err := http.NewRequest(method, n.scheme+"://"+n.Address+path, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(answer)
}
