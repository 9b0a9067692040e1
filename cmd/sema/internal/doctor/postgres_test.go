package doctor

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/internal/storetest/pgtest"
	"github.com/sema-go/sema/x/pgstore"
)

func migrate(t *testing.T, url string) {
	t.Helper()
	if err := pgstore.Migrate(t.Context(), url); err != nil {
		t.Fatal(err)
	}
}

// TestDoctor_MissingTables checks that missing tables are reported, and not created.
func TestDoctor_MissingTables(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	r, code := diagnose(t, server.URL()+"&sema_schema=undoctored&sema_migrate=auto")
	r.want(t, "tables", fleet.LevelProblem, "run 'sema migrate'")
	if code != 69 {
		t.Errorf("code %d", code)
	}
	if found, err := server.Psql("postgres", "SELECT nspname FROM pg_namespace WHERE nspname = 'undoctored'"); err != nil || strings.Contains(found, "undoctored") {
		t.Errorf("the schema was created: %s, %v", found, err)
	}
}

// TestDoctor_Standby checks that a standby is distinguished from a full server and from missing
// rights.
func TestDoctor_Standby(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t)
	migrate(t, primary.URL())
	r, code := diagnose(t, primary.Standby(t).URL())
	r.want(t, "use", fleet.LevelProblem, "as replicas and standbys are: name the primary")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

// TestDoctor_PostgresIsStopped checks that a server that accepts connections and does not reply is
// distinguished from one that cannot be reached.
func TestDoctor_PostgresIsStopped(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	server.Pause()
	defer server.Continue()
	for _, mode := range []string{"disable", "prefer"} {
		r, code := diagnose(t, "postgres://postgres@"+server.Address+"/postgres?sslmode="+mode)
		r.want(t, "reply", fleet.LevelProblem, "the server accepts connections, but did not reply in time")
		if code != 69 {
			t.Errorf("%s: code %d", mode, code)
		}
	}
}

func TestDoctor_PostgresIsFine(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	migrate(t, server.URL())
	r, code := diagnose(t, server.URL())
	r.wantFine(t, code)
	for _, check := range []string{"connect", "authenticate", "clock", "version", "tables", "role", "persistence", "replication", "pooler", "connections", "transactions", "stored", "use"} {
		r.want(t, check, fleet.LevelOK, "")
	}
	if left, err := server.Psql("postgres", "SELECT name FROM sema.semaphore"); left != "" || err != nil {
		t.Errorf("left behind: %s, %v", left, err)
	}
}

func TestDoctor_PostgresIsMisconfigured(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off", "synchronous_commit=off", "max_connections=8", "superuser_reserved_connections=1")
	// Clients that keep transactions open and use most connections.
	for range 5 {
		idle(t, server)
	}
	server.Standby(t)
	migrate(t, server.URL())
	r, code := diagnose(t, server.URL()+"&pool_max_conns=1&sema_listen=poll")
	if code != 1 {
		t.Errorf("code %d", code)
	}
	r.want(t, "persistence", fleet.LevelProblem, "fsync is off")
	r.want(t, "persistence", fleet.LevelProblem, "synchronous_commit is off")
	r.want(t, "replication", fleet.LevelProblem, "it has 1 standbys and waits for none of them")
	r.want(t, "pooler", fleet.LevelWarning, "sema_listen=poll")
	r.want(t, "connections", fleet.LevelWarning, "raise max_connections")
}

// idle opens a connection with an idle transaction.
func idle(t *testing.T, server *pgtest.Server) {
	t.Helper()
	psql := exec.Command("psql", server.URL())
	in, err := psql.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := psql.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := psql.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		psql.Wait()
	})
	in.Write([]byte("BEGIN;\n"))
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestDoctor_PostgresPooler(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	url := pgtest.StartPgBouncer(t, server).URL()
	migrate(t, url+"&sema_schema=pooler")
	r, _ := diagnose(t, url+"&sema_schema=pooler")
	r.want(t, "pooler", fleet.LevelWarning, "LISTEN is not possible")
	r.want(t, "use", fleet.LevelOK, "work")
	r, _ = diagnose(t, url+"&sema_schema=pooler&sema_listen="+server.Address)
	r.want(t, "pooler", fleet.LevelOK, "notifications arrive from "+server.Address)
}

func TestDoctor_PostgresIsUnreachable(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	if out, err := server.Psql("postgres", "CREATE ROLE secured LOGIN PASSWORD '"+secret+"'; CREATE ROLE poor_doctor LOGIN"); err != nil {
		t.Fatal(out)
	}
	url := func(user, database string) string { return server.URLOf(user, database).String() }
	wrong := strings.Replace(url("secured", "postgres"), "@", ":"+secret+"-wrong@", 1)
	preferred := func(url string) string { return strings.TrimSuffix(url, "?sslmode=disable") } // the default: the server rejects TLS first
	for _, c := range []struct{ store, check, text string }{
		{wrong, "authenticate", "check user and password"},
		{preferred(wrong), "authenticate", "check user and password"},
		{preferred(url("postgres", "nowhere")), "database", "check the name of the database in the URL"},
		{url("postgres", "nowhere"), "database", "create the database first"},
		{url("poor_doctor", "postgres") + "&sema_schema=unused", "tables", "run 'sema migrate'"},
		{strings.Replace(url("postgres", "postgres"), "sslmode=disable", "sslmode=require", 1), "TLS", "use TLS on both sides or on neither"},
		{"postgres:///postgres?host=/nowhere", "connect", "no such socket"},
	} {
		r, code := diagnose(t, c.store, "--timeout", "5m")
		r.want(t, c.check, fleet.LevelProblem, c.text)
		if code != 69 {
			t.Errorf("%s: code %d", c.store, code)
		}
	}
}
