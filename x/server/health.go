package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"
)

// livez says that the process works.
func (s *Server) livez(w http.ResponseWriter, _ *http.Request) error {
	_, err := fmt.Fprintln(w, "ok")
	return err
}

// readyz says whether requests are welcome here: the engine answers, and the server
// is not about to go.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	start := time.Now()
	answer := make(chan error, 1) // not all engines give up in time
	go func() { _, err := s.store.Inspect(ctx, "sema-readyz"); answer <- err }()
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		s.log.Warn("the engine does not answer", "error", err)
		if _, stranger := s.identify(r); stranger != nil {
			err = errUnreachable
		}
	}
	checks := []check{{"engine", err, time.Since(start)}, {"staying", s.staying(), 0}}
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

// errUnreachable is what those are told of an engine who may not know where it is.
var errUnreachable = errors.New("does not answer; the log says more")

// A check is something that has to be well.
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
		return fmt.Sprintf("[+] %s: answered in %v", c.what, c.took.Round(10*time.Microsecond))
	}
	return "[+] " + c.what
}

func (s *Server) staying() error {
	if s.unready.Load() {
		return errLeaving
	}
	return nil
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, map[string]string{"version": s.options.Version})
}

//go:embed openapi.json
var description []byte

// openAPI describes all of this for programs.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, err := w.Write(description)
	return err
}

// welcome is for people who look what is here: with a browser, or with curl.
func (s *Server) welcome(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, "/ui/", http.StatusFound)
		return nil
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := fmt.Fprintf(w, `Sema %s bounds concurrency: this server lends permits.

  curl -X POST 'http://%[2]s/v1/semaphores/demo/leases?capacity=3&wait=10s'   take one of three
  curl http://%[2]s/v1/semaphores/demo                                        who holds, who waits
  curl http://%[2]s/openapi.json                                              everything else
  http://%[2]s/ui/                                                            the same in a browser
`, s.options.Version, r.Host)
	return err
}
