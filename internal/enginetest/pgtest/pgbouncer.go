package pgtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/sema-go/sema/internal/enginetest"
)

// A PgBouncer lends connections to a server by the transaction.
type PgBouncer struct {
	*enginetest.Process
	Address string
	server  *Server
}

// StartPgBouncer starts one that has three connections to a server.
func StartPgBouncer(t enginetest.TB, server *Server) *PgBouncer {
	t.Helper()
	program := enginetest.Need(t, "pgbouncer", "pgbouncer")
	return enginetest.Launch(t, func() *PgBouncer {
		port, directory := enginetest.Port(t), enginetest.Directory(t, user)
		config := filepath.Join(directory, "pgbouncer.ini")
		if err := os.WriteFile(config, fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 500
server_login_retry = 1
`, server.Port, port, directory), 0o644); err != nil {
			t.Fatalf("PgBouncer's settings: %v", err)
		}
		b := &PgBouncer{Address: enginetest.Loopback(port), server: server}
		b.Process = enginetest.NewProcess(t, enginetest.Program{
			Path: program, Args: []string{"-q", config}, Dir: directory, User: user,
			Answers: func(int) error {
				conn, err := net.Dial("unix", filepath.Join(directory, fmt.Sprintf(".s.PGSQL.%d", port))) // which is its alone
				if err != nil {
					return err
				}
				return conn.Close()
			},
		})
		return b
	})
}

// URL leads the superuser to the server through it.
func (b *PgBouncer) URL() string {
	u := b.server.URLOf("postgres", "postgres")
	u.Host = b.Address
	return u.String()
}
