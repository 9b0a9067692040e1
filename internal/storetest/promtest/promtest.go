// Package promtest starts Prometheus servers, and runs promtool. See package storetest.
package promtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/sema-go/sema/internal/storetest"
)

// packages contain prometheus and promtool.
const packages = "prometheus"

// A Server is one Prometheus server.
type Server struct {
	*storetest.Process
	URL string

	tb storetest.TB
}

// A Config describes what a server scrapes.
type Config struct {
	Target string   // host:port
	Also   []string // more targets
	Rules  []string // paths of rule files
	Args   []string // more arguments on the command line

	// Interval is that of scrapes and evaluations, and the timeout of scrapes. Default
	// 250ms: times in the rules of a test are scaled to it, see [Scale].
	Interval time.Duration
}

// Start starts a server that scrapes targets as job "test".
func Start(t storetest.TB, c Config) *Server {
	t.Helper()
	program := storetest.Need(t, "prometheus", packages)
	return storetest.Launch(t, func() *Server {
		dir := storetest.Directory(t, "")
		interval := cmp.Or(c.Interval, 250*time.Millisecond)
		config := filepath.Join(dir, "prometheus.yml")
		write(t, config, map[string]any{
			"global":         map[string]any{"scrape_interval": interval.String(), "scrape_timeout": interval.String(), "evaluation_interval": interval.String()},
			"rule_files":     c.Rules,
			"scrape_configs": []any{map[string]any{"job_name": "test", "static_configs": []any{map[string]any{"targets": append([]string{c.Target}, c.Also...)}}}},
		})
		address := storetest.Loopback(storetest.Port(t))
		s := &Server{URL: "http://" + address, tb: t}
		s.Process = storetest.NewProcess(t, storetest.Program{
			Path: program, Dir: dir,
			Args:  append([]string{"--config.file=" + config, "--storage.tsdb.path=" + dir, "--web.listen-address=" + address, "--log.level=warn"}, c.Args...),
			Ready: func(int) error { return s.ready(dir) },
		})
		return s
	})
}

// write writes a configuration. JSON is YAML.
func write(t storetest.TB, path string, config any) {
	data, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatalf("write the configuration: %v", err)
	}
}

// ready returns nil once the server with this directory serves requests.
func (s *Server) ready(dir string) error {
	var flags map[string]string
	if err := s.get("/api/v1/status/flags", &flags); err != nil {
		return err
	}
	if flags["storage.tsdb.path"] != dir {
		return errors.New("another server has the port")
	}
	return nil
}

// get reads the data of an API reply.
func (s *Server) get(path string, data any) error {
	reply, err := (&http.Client{Timeout: 10 * time.Second}).Get(s.URL + path)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	var envelope struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("%s: %s: %w", path, reply.Status, err)
	}
	if envelope.Status != "success" {
		return fmt.Errorf("%s: %s", path, envelope.Error)
	}
	return json.Unmarshal(envelope.Data, data)
}

// An Alert is pending or firing.
type Alert struct {
	Labels map[string]string
	State  string
}

// Alerts returns all alerts that are pending or firing.
func (s *Server) Alerts() []Alert {
	s.tb.Helper()
	var data struct{ Alerts []Alert }
	if err := s.get("/api/v1/alerts", &data); err != nil {
		s.tb.Fatalf("read alerts: %v", err)
	}
	return data.Alerts
}

// Query returns the values of an instant query.
func (s *Server) Query(expr string) (values []float64) {
	s.tb.Helper()
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		s.tb.Fatalf("query %s: %v", expr, err)
	}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			s.tb.Fatalf("query %s: %v", expr, err)
		}
		values = append(values, v)
	}
	return values
}

var durations = regexp.MustCompile(`\b(\d+)(m|h)\b`)

// Scale returns rules whose minutes are seconds, for tests in which they fire.
func Scale(rules []byte) []byte {
	return durations.ReplaceAllFunc(rules, func(d []byte) []byte {
		n, _ := strconv.Atoi(string(d[:len(d)-1]))
		if d[len(d)-1] == 'h' {
			n *= 60
		}
		return fmt.Appendf(nil, "%ds", n)
	})
}
