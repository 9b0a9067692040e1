package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// livez responds as long as the process works.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) error {
	_, err := fmt.Fprintln(w, "ok")
	return err
}

// readyz reports whether the store is writable and the server is not being stopped.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	took, err := s.readiness.of(s.service)
	if err != nil {
		token, ok := bearer(r)
		if _, unidentified := s.service.identity(r, token, ok); unidentified != nil {
			err = errUnreachable
		}
	}
	checks := []check{{"store", err, took}, {"accepting requests", s.acceptingRequests(), 0}}
	status := http.StatusOK
	for _, c := range checks {
		if c.err != nil {
			status = http.StatusServiceUnavailable
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	if _, verbose := r.URL.Query()["verbose"]; verbose || status != http.StatusOK {
		for _, c := range checks {
			fmt.Fprintln(w, c)
		}
	}
	if status == http.StatusOK {
		fmt.Fprintln(w, "ok")
	}
	return nil
}

const (
	readyTimeout = 2 * time.Second // timeout of a check of the store
	readyFor     = time.Second     // how long a result is reused, so that more probes cost the store nothing

	// readyName is the semaphore that is created and deleted to check whether the store is
	// writable.
	readyName = "sema-readyz"
)

// readiness caches the last check of the store.
type readiness struct {
	mu      sync.Mutex
	at      time.Time
	took    time.Duration
	err     error
	pending chan error // result of a check that has not ended in time
}

// of returns the result of a check that is at most a second old. One check runs at a time;
// callers wait for it.
func (c *readiness) of(s *service) (took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < readyFor {
		return c.took, c.err
	}
	start := time.Now()
	if c.pending == nil {
		result := make(chan error, 1) // not all stores return at the deadline
		c.pending = result
		go func() { result <- s.writable() }()
	}
	select {
	case c.err = <-c.pending:
		c.pending = nil
	case <-time.After(readyTimeout):
		c.err = fmt.Errorf("no reply within %v", readyTimeout)
	}
	c.at, c.took = time.Now(), time.Since(start)
	if c.err != nil {
		s.journal.error("readiness", "the store failed a write check", "error", c.err)
	}
	return c.took, c.err
}

// writable fails if the store cannot be read or written.
func (s *service) writable() error {
	ctx, cancel := context.WithTimeout(s.life, readyTimeout)
	defer cancel()
	store := s.store.Store // not counted for any client
	config := Declaration{Capacity: 1, TTL: time.Second}.Config()
	if _, _, err := store.Open(ctx, readyName, config, protocol.Opener{Client: protocol.Client{Instance: "readyz"}, Owner: protocol.Owner{Key: protocol.NewKey()}}); err != nil {
		return err
	}
	if err := store.Administer(ctx, readyName, fleet.Command{Delete: true}); err != nil && !errors.Is(err, fs.ErrNotExist) { // another server's check may delete it first
		return err
	}
	_, err := store.Inspect(ctx, readyName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// errUnreachable replaces the error of an outage for unauthenticated clients: it hides the
// address of the store.
var errUnreachable = errors.New("does not respond; the log has the cause")

// A check is the result of one readiness check.
type check struct {
	what string
	err  error
	took time.Duration
}

func (c check) String() string {
	switch {
	case c.err != nil:
		return fmt.Sprintf("[-] %s: %v", c.what, c.err)
	case c.took > 0:
		return fmt.Sprintf("[+] %s: responded in %v", c.what, c.took.Round(10*time.Microsecond))
	}
	return "[+] " + c.what
}

func (s *Server) acceptingRequests() error {
	if s.unready.Load() {
		return errLeaving
	}
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return respond(w, http.StatusOK, map[string]string{"version": s.service.options.Version})
}

//go:embed openapi.json
var description []byte

// OpenAPI returns the description of the HTTP API, which /openapi.json serves.
func OpenAPI() []byte { return slices.Clone(description) }

// openAPI responds with the OpenAPI description.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(description)
	return err
}

// welcome responds with commands to try first, and redirects browsers to the dashboard.
func (s *Server) welcome(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, "/ui/", http.StatusFound)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := fmt.Fprintf(w, `Sema %s bounds concurrency: this server grants permits.

  curl -X POST 'http://%[2]s/v1/semaphores/demo/leases?capacity=3&wait=10s'   acquire one of three
  curl http://%[2]s/v1/semaphores/demo                                        holders and waiters
  curl http://%[2]s/openapi.json                                              everything else
  http://%[2]s/ui/                                                            the dashboard, in a browser
`, s.service.options.Version, r.Host)
	if err == nil && s.service.options.Documents != nil {
		_, err = fmt.Fprintf(w, "  http://%s/docs/                                                          the documents\n", r.Host)
	}
	return err
}
