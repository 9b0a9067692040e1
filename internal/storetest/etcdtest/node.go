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

	"github.com/sema-go/sema/internal/storetest"
)

// A Node is one server.
type Node struct {
	*storetest.Process
	Address string // for clients

	tb         storetest.TB
	cluster    *Cluster
	name       string // unique among the servers of all clusters
	scheme     string
	secure     *tls.Config
	peers      *storetest.Proxy // the proxy through which the other servers reach this one
	isolatedAs string           // its member ID while it is isolated; "" otherwise
}

// Isolate cuts the server off from the others. Clients still reach it.
func (n *Node) Isolate() {
	n.tb.Helper()
	n.isolatedAs = n.memberID()
	n.peers.SetFault(storetest.Fault{Reject: true})
	n.peers.Cut()
	for _, other := range n.cluster.Nodes {
		other.peers.Block(n.isolatedAs)
	}
}

// Rejoin ends Isolate.
func (n *Node) Rejoin() {
	n.tb.Helper()
	n.peers.Heal()
	for _, other := range n.cluster.Nodes {
		other.peers.Unblock(n.isolatedAs)
	}
	n.isolatedAs = ""
}

// Etcdctl runs etcdctl against this server and returns its output.
func (n *Node) Etcdctl(args ...string) string {
	n.tb.Helper()
	return n.cluster.etcdctl([]string{n.Address}, args)
}

// sender returns the ID of the member that sent a request to another member.
func sender(hello []byte) string {
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(hello)))
	if err != nil {
		return ""
	}
	return request.Header.Get("X-Server-From")
}

// checkReady returns nil if this server is healthy. It detects another server
// at the same address.
func (n *Node) checkReady() error {
	var health struct{ Health string }
	if err := n.call("GET", "/health", &health); err != nil {
		return err
	}
	var list struct{ Members []struct{ Name string } }
	if err := n.call("POST", "/v3/cluster/member/list", &list); err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.Name == n.name && health.Health == "true" {
			return nil
		}
	}
	return fmt.Errorf("%s: health %s, %s among members %v", n.Address, health.Health, n.name, list.Members)
}

// A status is a server's reply to a status request at its HTTP gateway.
type status struct {
	Header struct {
		MemberID string `json:"member_id"`
	}
	Leader string
}

func (n *Node) leads() bool {
	var s status
	return n.call("POST", "/v3/maintenance/status", &s) == nil && s.Leader != "" && s.Leader == s.Header.MemberID
}

// memberID returns the ID in the form in which servers send it to each other.
func (n *Node) memberID() string {
	n.tb.Helper()
	var s status
	err := n.call("POST", "/v3/maintenance/status", &s)
	id, parseErr := strconv.ParseUint(s.Header.MemberID, 10, 64)
	if err != nil || parseErr != nil {
		n.tb.Fatalf("member ID of %s: %v, %v", n.Address, err, parseErr)
	}
	return strconv.FormatUint(id, 16)
}

func (n *Node) call(method, path string, reply any) error {
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
	return json.NewDecoder(response.Body).Decode(reply)
}
