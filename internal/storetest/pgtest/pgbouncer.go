package pgtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/sema-go/sema/internal/storetest"
)

// A PgBouncer is a connection pooler in front of a server, in transaction mode.
type PgBouncer struct {
	*storetest.Process
	Address string
	server  *Server
}

// StartPgBouncer starts a pooler with three connections to a server.
func StartPgBouncer(t storetest.TB, server *Server) *PgBouncer {
	t.Helper()
	program := storetest.Need(t, "pgbouncer", "pgbouncer")
	return storetest.Launch(t, func() *PgBouncer {
		port, directory := storetest.Port(t), storetest.Directory(t, user)
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
			t.Fatalf("write pgbouncer.ini: %v", err)
		}
		b := &PgBouncer{Address: storetest.Loopback(port), server: server}
		b.Process = storetest.NewProcess(t, storetest.Program{
			Path: program, Args: []string{"-q", config}, Dir: directory, User: user,
			Ready: func(int) error {
				conn, err := net.Dial("unix", filepath.Join(directory, fmt.Sprintf(".s.PGSQL.%d", port))) // a socket that no other pooler uses
				if err != nil {
					return err
				}
				return conn.Close()
			},
		})
		return b
	})
}

// URL returns the superuser's URL of the server through the pooler.
func (b *PgBouncer) URL() string {
	u := b.server.URLOf("postgres", "postgres")
	u.Host = b.Address
	return u.String()
}
