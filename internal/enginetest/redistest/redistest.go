// Package redistest starts Redis servers: single ones, with replicas, watched by
// Sentinels, or as a cluster. See package enginetest.
package redistest

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

// packages have redis-server, redis-cli and what is a Sentinel.
const packages = "redis-server redis-tools"

// Shared is for tests that leave the server as it is, and use keys of their own.
var Shared = enginetest.Shared[*Server]{
	Variable: "SEMA_TEST_REDIS_URL",
	Start:    func(t enginetest.TB) *Server { return Start(t) },
}

// A Server is one process of Redis's.
type Server struct {
	*enginetest.Process
	Address string
	Port    int

	tb     enginetest.TB
	client client
	ca     string // the file for those who connect by TLS
}

// Start starts a server, without persistence unless the settings say otherwise.
// Settings are as on its command line: "--appendonly", "yes". A password among
// them is the one that this package uses too.
//
// It seems to have been started long ago: what was started just now may have
// forgotten something, and x/redisstore grants nothing for a while. One that is
// killed and started again is as new as it is.
func Start(t enginetest.TB, settings ...string) *Server {
	t.Helper()
	return aged(t, func(t enginetest.TB) *Server { return start(t, "--port", client{}, settings) })
}

// StartNew starts a server that goes by the machine's clock, and is as new as it is.
func StartNew(t enginetest.TB, settings ...string) *Server {
	t.Helper()
	return start(t, "--port", client{}, settings)
}

// aged has a server be started days ago, by its clock.
func aged(t enginetest.TB, start func(enginetest.TB) *Server) *Server {
	t.Helper()
	clock := enginetest.ClockOf(t)
	clock.Set(-50 * time.Hour)
	s := start(clock.For(t))
	clock.Set(0)
	s.tb = t
	return s
}

// TLS starts a server that speaks TLS alone, and asks nobody for a certificate.
// The file has the certificate of who has signed its own.
func TLS(t enginetest.TB, settings ...string) (s *Server, ca string) {
	t.Helper()
	authority := enginetest.NewAuthority(t)
	cert, key := authority.Issue(t, "server")
	s = aged(t, func(t enginetest.TB) *Server {
		return start(t, "--tls-port", client{secure: authority.Client(t)}, append([]string{
			"--port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority.File, "--tls-auth-clients", "no",
		}, settings...))
	})
	s.ca = authority.File
	return s, s.ca
}

func start(t enginetest.TB, portSetting string, by client, settings []string) *Server {
	t.Helper()
	program := enginetest.Need(t, "redis-server", packages)
	if at := slices.Index(settings, "--requirepass"); at >= 0 {
		by.password = settings[at+1]
	}
	return enginetest.Launch(t, func() *Server {
		directory := enginetest.Directory(t, "")
		return newServer(t, program, directory, by, func(port int) []string {
			return slices.Concat([]string{portSetting, strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", directory, "--save", ""}, settings)
		})
	})
}

func newServer(t enginetest.TB, program, directory string, by client, arguments func(port int) []string) *Server {
	t.Helper()
	s := &Server{tb: t, Port: enginetest.Port(t), client: by}
	s.Address = enginetest.Loopback(s.Port)
	s.client.address = s.Address
	s.Process = enginetest.NewProcess(t, enginetest.Program{
		Path: program, Args: arguments(s.Port), Dir: directory,
		Answers: func(pid int) error {
			info, err := s.Do("INFO", "server")
			if err == nil && !strings.Contains(info, fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)) {
				err = fmt.Errorf("another server has port %d", s.Port)
			}
			return err
		},
	})
	return s
}

// For is for [enginetest.Shared].
func (s *Server) For(t enginetest.TB) *Server {
	likeness := *s
	likeness.tb = t
	return &likeness
}

// URL is for fleet.Open.
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

// Do sends a command over a connection of its own, and returns the answer as
// redis-cli prints it where nobody looks: what is in a list each on a line.
func (s *Server) Do(command ...string) (string, error) { return s.client.do(command) }

// Must is Do for a command that has to succeed.
func (s *Server) Must(command ...string) string {
	s.tb.Helper()
	answer, err := s.Do(command...)
	if err != nil {
		s.tb.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	return answer
}

// Await waits until a command's answer has some text in it.
func (s *Server) Await(text string, command ...string) {
	s.tb.Helper()
	var answer string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if answer, _ = s.Do(command...); strings.Contains(answer, text) {
			return
		}
	}
	s.tb.Fatalf("%s: there is no %q in %s", strings.Join(command, " "), text, answer)
}
