// Package pgtest starts PostgreSQL servers, their standbys and PgBouncer. If
// this program runs as root, user postgres runs them. See package storetest.
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

	"github.com/sema-go/sema/internal/storetest"
)

// user runs PostgreSQL instead of root, which PostgreSQL does not allow.
const user = "postgres"

// Shared is for tests that use schemas and roles of their own. It does not sync
// to disk.
var Shared = storetest.Shared[*Server]{
	Variable: "SEMA_TEST_POSTGRES_URL",
	Start: func(t storetest.TB) *Server {
		return Start(t, "fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=500")
	},
}

// A Server is a PostgreSQL database cluster that no other test uses.
type Server struct {
	Address string
	Port    int

	tb        storetest.TB
	process   *storetest.Process
	directory string
	programs  string // the directory of initdb and postgres
	settings  []string
}

// Start creates a server and waits until it is ready. Settings are as in
// postgresql.conf: "fsync=off". The superuser is postgres, without a password.
// Users whose name begins with "secured" need a password, others are trusted.
func Start(t storetest.TB, settings ...string) *Server {
	t.Helper()
	programs := findPrograms(t)
	return storetest.Launch(t, func() *Server {
		s := newServer(t, programs, settings)
		s.mustRun("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C", "--no-instructions")
		const access = "local all all trust\nhost all \"/^secured\" 127.0.0.1/32 scram-sha-256\nhost all secured 127.0.0.1/32 scram-sha-256\n" +
			"host all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
		if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(access), 0o600); err != nil {
			t.Fatalf("write pg_hba.conf: %v", err)
		}
		return s
	})
}

// Standby starts a hot standby of this server. It is read-only.
func (s *Server) Standby(t storetest.TB) *Server {
	t.Helper()
	return storetest.Launch(t, func() *Server {
		standby := newServer(t, s.programs, s.settings)
		standby.mustRun("pg_basebackup", "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", "postgres", "-D", standby.data(), "-R", "-c", "fast")
		return standby
	})
}

// findPrograms returns the directory of PostgreSQL's programs, which Debian
// keeps out of the PATH.
func findPrograms(t storetest.TB) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return filepath.Dir(storetest.Need(t, "initdb", "postgresql"))
	}
	return filepath.Dir(found[len(found)-1])
}

func newServer(t storetest.TB, programs string, settings []string) *Server {
	t.Helper()
	s := &Server{tb: t, programs: programs, settings: settings, directory: storetest.Directory(t, user), Port: storetest.Port(t)}
	s.Address = storetest.Loopback(s.Port)
	arguments := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.directory, "-c", "listen_addresses=127.0.0.1",
		"-c", "max_wal_senders=5", "-c", "wal_level=replica", "-c", "dynamic_shared_memory_type=mmap"}
	for _, setting := range settings {
		arguments = append(arguments, "-c", setting)
	}
	t.Cleanup(s.removeSharedMemory)
	s.process = storetest.NewProcess(t, storetest.Program{
		Path: filepath.Join(programs, "postgres"), Args: arguments, Dir: s.directory, User: user,
		ImmediateSignal: syscall.SIGQUIT, StopSignal: syscall.SIGINT, Ready: s.checkReady,
	})
	return s
}

func (s *Server) data() string { return filepath.Join(s.directory, "data") }

// mustRun runs one of PostgreSQL's own programs until it exits.
func (s *Server) mustRun(program string, arguments ...string) {
	s.tb.Helper()
	err := storetest.Program{Path: filepath.Join(s.programs, program), Args: arguments, Dir: s.directory, User: user}.Run()
	if err != nil {
		s.tb.Fatalf("%v", err)
	}
}

// checkReady returns nil once postmaster.pid contains the process ID and the
// status "ready".
func (s *Server) checkReady(pid int) error {
	lines := s.pidFile()
	if len(lines) < 8 || lines[0] != strconv.Itoa(pid) || strings.TrimSpace(lines[7]) != "ready" {
		return fmt.Errorf("not ready: postmaster.pid is %q", lines)
	}
	return nil
}

// pidFile returns the lines of postmaster.pid: the process ID, data directory,
// start time, port, socket directory, listen address, shared memory key and ID,
// and status.
func (s *Server) pidFile() []string {
	text, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	return strings.Split(string(text), "\n")
}

// removeSharedMemory removes the System V segment that a killed server leaves.
func (s *Server) removeSharedMemory() {
	if lines := s.pidFile(); len(lines) >= 7 {
		if keyAndID := strings.Fields(lines[6]); len(keyAndID) == 2 {
			_ = exec.Command("ipcrm", "-m", keyAndID[1]).Run() // it may be gone
		}
	}
}

// Start starts the server unless it is running, and waits until it is ready.
func (s *Server) Start() error { return s.process.Start() }

// Restart kills the server if it is running, and starts it again.
func (s *Server) Restart() { s.tb.Helper(); s.process.Restart() }

// Stop requests PostgreSQL's fast shutdown, which rolls back open transactions.
func (s *Server) Stop() { s.tb.Helper(); s.process.Stop() }

// StopAtOnce requests PostgreSQL's immediate shutdown, after which the server
// has to recover.
func (s *Server) StopAtOnce() { s.tb.Helper(); s.process.StopAtOnce() }

// Kill sends SIGKILL to the postmaster, which the server's other processes do
// not outlive.
func (s *Server) Kill() { s.tb.Helper(); s.process.Kill() }

// Pause stops the process that accepts connections, with SIGSTOP, until Continue. The kernel still
// accepts them.
func (s *Server) Pause() { s.tb.Helper(); s.process.Pause() }

// Continue ends a pause.
func (s *Server) Continue() { s.tb.Helper(); s.process.Continue() }

// For implements the interface of [storetest.Shared].
func (s *Server) For(t storetest.TB) *Server {
	shared := *s
	shared.tb = t
	return &shared
}

// URL returns the superuser's URL of database postgres.
func (s *Server) URL() string { return s.URLOf("postgres", "postgres").String() }

// URLOf returns the URL of a database for a user.
func (s *Server) URLOf(user, database string) *url.URL {
	return &url.URL{Scheme: "postgres", User: url.User(user), Host: s.Address, Path: database, RawQuery: "sslmode=disable"}
}

// Psql runs statements as the superuser and returns psql's unaligned output
// without headers.
func (s *Server) Psql(database, statements string) (string, error) {
	out, err := exec.Command(filepath.Join(s.programs, "psql"), "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", "postgres", "-d", database,
		"-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statements).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}
