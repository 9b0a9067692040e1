// Package pgtest starts PostgreSQL servers, their standbys and PgBouncer. Who is
// root has them run by user postgres. See package enginetest.
package pgtest

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/sema-go/sema/internal/enginetest"
)

// user is who runs it instead of root, which PostgreSQL refuses.
const user = "postgres"

// Shared is for tests that use schemas and roles of their own. It does not wait
// for the disk.
var Shared = enginetest.Shared[*Server]{
	Variable: "SEMA_TEST_POSTGRES_URL",
	Start: func(t enginetest.TB) *Server {
		return Start(t, "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=500")
	},
}

// A Server is one cluster of PostgreSQL's, with nobody else in it.
type Server struct {
	Address string
	Port    int

	tb        enginetest.TB
	process   *enginetest.Process
	directory string
	programs  string // where initdb and postgres are
	settings  []string
}

// Start makes a server and waits until it is ready. Settings are as in
// postgresql.conf: "fsync=off". The superuser is postgres, without a password.
// Users whose name begins with "secured" need one, others are trusted.
func Start(t enginetest.TB, settings ...string) *Server {
	t.Helper()
	programs := findPrograms(t)
	return enginetest.Launch(t, func() *Server {
		s := newServer(t, programs, settings)
		s.mustRun("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C", "--no-instructions")
		const access = "local all all trust\nhost all \"/^secured\" 127.0.0.1/32 scram-sha-256\nhost all secured 127.0.0.1/32 scram-sha-256\n" +
			"host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
		if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(access), 0o600); err != nil {
			t.Fatalf("who may connect: %v", err)
		}
		return s
	})
}

// Standby starts a server that follows this one, and cannot be written to.
func (s *Server) Standby(t enginetest.TB) *Server {
	t.Helper()
	return enginetest.Launch(t, func() *Server {
		standby := newServer(t, s.programs, s.settings)
		standby.mustRun("pg_basebackup", "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", "postgres", "-D", standby.data(), "-R", "-c", "fast")
		return standby
	})
}

// findPrograms finds what Debian keeps off the PATH.
func findPrograms(t enginetest.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return filepath.Dir(enginetest.Need(t, "initdb", "postgresql"))
	}
	return filepath.Dir(found[len(found)-1])
}

func newServer(t enginetest.TB, programs string, settings []string) *Server {
	t.Helper()
	s := &Server{tb: t, programs: programs, settings: settings, directory: enginetest.Directory(t, user), Port: enginetest.Port(t)}
	s.Address = enginetest.Loopback(s.Port)
	arguments := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.directory, "-c", "listen_addresses=127.0.0.1",
		"-c", "max_wal_senders=5", "-c", "wal_level=replica", "-c", "dynamic_shared_memory_type=mmap"}
	for _, setting := range settings {
		arguments = append(arguments, "-c", setting)
	}
	t.Cleanup(s.removeMemory)
	s.process = enginetest.NewProcess(t, enginetest.Program{
		Path: filepath.Join(programs, "postgres"), Args: arguments, Dir: s.directory, User: user,
		AtOnce: syscall.SIGQUIT, InOrder: syscall.SIGINT, Answers: s.answers,
	})
	return s
}

func (s *Server) data() string { return filepath.Join(s.directory, "data") }

// mustRun runs one of PostgreSQL's own programs to its end.
func (s *Server) mustRun(program string, arguments ...string) {
	s.tb.Helper()
	err := enginetest.Program{Path: filepath.Join(s.programs, program), Args: arguments, Dir: s.directory, User: user}.Run()
	if err != nil {
		s.tb.Fatalf("%v", err)
	}
}

// answers looks into the file in which a server says how far it has got.
func (s *Server) answers(pid int) error {
	lines := s.pidFile()
	if len(lines) < 8 || lines[0] != strconv.Itoa(pid) || strings.TrimSpace(lines[7]) != "ready" {
		return fmt.Errorf("it is not ready: %q", lines)
	}
	return nil
}

// pidFile has the process, the data, when it began, the port, directory and
// address of its sockets, the shared memory, and how far it has got.
func (s *Server) pidFile() []string {
	text, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	return strings.Split(string(text), "\n")
}

// removeMemory does what a server that was killed could not do for itself.
func (s *Server) removeMemory() {
	if lines := s.pidFile(); len(lines) >= 7 {
		if keyAndID := strings.Fields(lines[6]); len(keyAndID) == 2 {
			_ = exec.Command("ipcrm", "-m", keyAndID[1]).Run() // it may be gone
		}
	}
}

// Start starts the server, unless it runs, and waits until it is ready.
func (s *Server) Start() error { return s.process.Start() }

// Restart kills the server, if it runs, and starts it again.
func (s *Server) Restart() { s.tb.Helper(); s.process.Restart() }

// Stop is PostgreSQL's fast shutdown: transactions are rolled back.
func (s *Server) Stop() { s.tb.Helper(); s.process.Stop() }

// StopAtOnce is its immediate shutdown, after which it has to recover.
func (s *Server) StopAtOnce() { s.tb.Helper(); s.process.StopAtOnce() }

// Kill is kill -9 of the first of its processes, which the others do not outlive.
func (s *Server) Kill() { s.tb.Helper(); s.process.Kill() }

// For is for [enginetest.Shared].
func (s *Server) For(t enginetest.TB) *Server {
	likeness := *s
	likeness.tb = t
	return &likeness
}

// URL is for the superuser.
func (s *Server) URL() string { return s.URLOf("postgres", "postgres").String() }

// URLOf names a database of the server and who uses it.
func (s *Server) URLOf(user, database string) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User(user), Host: s.Address, Path: database, RawQuery: "sslmode=disable"}
}

// Psql runs statements as the superuser and returns what psql prints, unadorned.
func (s *Server) Psql(database, statements string) (string, error) {
	out, err := exec.Command(filepath.Join(s.programs, "psql"), "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", "postgres", "-d", database,
		"-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statements).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
