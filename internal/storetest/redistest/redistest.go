// Package redistest starts Redis servers: single servers, replicas, Sentinels
// and clusters. See package storetest.
package redistest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

// packages contain redis-server, which is also the Sentinel, and redis-cli.
const packages = "redis-server redis-tools"

// Shared is for tests that use keys of their own and do not change the server.
var Shared = storetest.Shared[*Server]{
	Variable: "SEMA_TEST_REDIS_URL",
	Start:    func(t storetest.TB) *Server { return Start(t) },
}

// A Server is one Redis process.
type Server struct {
	*storetest.Process
	Address string
	Port    int

	tb     storetest.TB
	client client
	ca     string // path of the CA certificate for TLS clients
}

// Start starts a server, by default without persistence. Settings are as on its
// command line: "--appendonly", "yes". If they set a password, this package
// uses it too.
//
// The server's clock shows a start 50 hours ago: a server that just started may
// have lost data, and x/redisstore grants nothing for a while. After Kill and
// Start, the server's real age counts.
func Start(t storetest.TB, settings ...string) *Server {
	t.Helper()
	return startAged(t, func(t storetest.TB) *Server { return start(t, "--port", client{}, settings) })
}

// StartNew starts a server with the machine's clock, so its age is real.
func StartNew(t storetest.TB, settings ...string) *Server {
	t.Helper()
	return start(t, "--port", client{}, settings)
}

// startAged starts a server whose clock shows that it started 50 hours ago.
func startAged(t storetest.TB, start func(storetest.TB) *Server) *Server {
	t.Helper()
	clock := storetest.ClockOf(t)
	clock.Set(-50 * time.Hour)
	s := start(clock.For(t))
	clock.Set(0)
	s.tb = t
	return s
}

// TLS starts a server that accepts only TLS and requires no client
// certificates. The file contains the certificate of the authority that signed
// the server's.
func TLS(t storetest.TB, settings ...string) (s *Server, ca string) {
	t.Helper()
	authority := storetest.NewAuthority(t)
	cert, key := authority.Issue(t, "server")
	s = startAged(t, func(t storetest.TB) *Server {
		return start(t, "--tls-port", client{secure: authority.Client(t)}, append([]string{
			"--port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority.File, "--tls-auth-clients", "no",
		}, settings...))
	})
	s.ca = authority.File
	return s, s.ca
}

func start(t storetest.TB, portSetting string, by client, settings []string) *Server {
	t.Helper()
	program := storetest.Need(t, "redis-server", packages)
	if at := slices.Index(settings, "--requirepass"); at >= 0 {
		by.password = settings[at+1]
	}
	return storetest.Launch(t, func() *Server {
		directory := storetest.Directory(t, "")
		return newServer(t, program, directory, by, func(port int) []string {
			return slices.Concat([]string{portSetting, strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""}, settings)
		})
	})
}

func newServer(t storetest.TB, program, directory string, by client, arguments func(port int) []string) *Server {
	t.Helper()
	s := &Server{tb: t, Port: storetest.Port(t), client: by}
	s.Address = storetest.Loopback(s.Port)
	s.client.address = s.Address
	s.Process = storetest.NewProcess(t, storetest.Program{
		Path: program, Args: arguments(s.Port), Dir: directory,
		Ready: func(pid int) error {
			info, err := s.Do("INFO")
			switch {
			case err != nil:
				return err
			case !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)):
				return fmt.Errorf("another server has port %d", s.Port)
			case strings.Contains(info, "\r\nloading:1\r\n"): // it replies to INFO, and rejects all else
				return errors.New("the server is loading its data")
			}
			return nil
		},
	})
	return s
}

// For implements the interface of [storetest.Shared].
func (s *Server) For(t storetest.TB) *Server {
	shared := *s
	shared.tb = t
	return &shared
}

// URL returns the URL for fleet.Open.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Address, Path: "0"}
	if s.client.password != "" {
		u.User = url.UserPassword("", s.client.password)
	}
	if s.client.secure != nil {
		u.Scheme, u.RawQuery = "rediss", url.Values{"ca": {s.ca}}.Encode()
	}
	return u.String()
}

// Do sends a command over a new connection. It returns the reply in redis-cli's
// raw format: the elements of a list on one line each.
func (s *Server) Do(command ...string) (string, error) { return s.client.do(command) }

// Must calls Do and fails the test if the command fails.
func (s *Server) Must(command ...string) string {
	s.tb.Helper()
	reply, err := s.Do(command...)
	if err != nil {
		s.tb.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	return reply
}

// Await waits until the reply to a command contains text.
func (s *Server) Await(text string, command ...string) {
	s.tb.Helper()
	var reply string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if reply, _ = s.Do(command...); strings.Contains(reply, text) {
			return
		}
	}
	s.tb.Fatalf("%s: no %q in the reply within 20s: %s", strings.Join(command, " "), text, reply)
}
