package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sema-go/sema/internal/storetest/etcdtest"
	"github.com/sema-go/sema/internal/storetest/pgtest"
)

// looking lists the commands that read semaphores, or change existing ones. None of them may
// create or migrate anything.
var looking = [][]string{
	{"ls"}, {"ls", "-o", "json"}, {"show", "x"}, {"watch", "x"}, {"__complete", "show", ""}, {"doctor", "--pings", "2"},
	{"set", "x", "--capacity", "2"}, {"drain", "x"}, {"resume", "x"}, {"rm", "x", "--yes"}, {"revoke", "x", "1", "--now", "--yes"},
	{"renew", "x", "1.1.1"}, {"release", "x", "1.1.1"},
}

func TestReading_CreatesNoFile(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	s := shell{t: t, store: "sqlite://" + filepath.Join(directory, "sema.db")}
	for _, args := range looking {
		r := s.run(args...)
		if output := r.out + r.err; args[0] != "__complete" && (r.code == 0 || !strings.Contains(output, "the file does not exist")) {
			t.Errorf("sema %s: exit code %d, output %s", strings.Join(args, " "), r.code, output)
		}
		if left, err := os.ReadDir(directory); err != nil || len(left) > 0 {
			t.Fatalf("sema %s leaves %v, %v", strings.Join(args, " "), left, err)
		}
	}
	s.must("run", "x", "-n", "3", "--", "true")
	if got := s.show("x"); got.Capacity != 3 {
		t.Errorf("it shows %+v", got)
	}
	s.must("set", "x", "--capacity", "4")
	if got := s.show("x"); got.Capacity != 4 {
		t.Errorf("it shows %+v", got)
	}
}

// TestReading_OfAnOwnedFile checks that other processes can read the file of a running server.
func TestReading_OfAnOwnedFile(t *testing.T) {
	t.Parallel()
	s := shell{t: t, store: "sqlite://" + filepath.Join(t.TempDir(), "sema.db")}
	p := holding(s, "x", "-n", "1")
	if got := s.show("x"); got.InUse != 1 {
		t.Errorf("it shows %+v", got)
	}
	s.expect(69, []string{"has it open"}, "set", "x", "--capacity", "2")
	p.in.Close()
	p.wait()
}

func TestReading_MigratesNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared.Server(t)
	s := shell{t: t, store: server.URL() + "&sema_schema=looked_at"}
	count := func() string {
		found, err := server.Psql("postgres", "SELECT 'found '||nspname FROM pg_namespace WHERE nspname = 'looked_at'")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, args := range looking {
		r := s.run(args...)
		if output := r.out + r.err; args[0] != "__complete" && (r.code != 69 || !strings.Contains(output, "sema migrate")) {
			t.Errorf("sema %s: exit code %d, output %s", strings.Join(args, " "), r.code, output)
		}
		if found := count(); strings.Contains(found, "found looked_at") {
			t.Fatalf("sema %s has created the schema", strings.Join(args, " "))
		}
	}
	s.must("run", "x", "-n", "3", "--", "true") // creates the schema
	if got := s.show("x"); got.Capacity != 3 {
		t.Errorf("it shows %+v", got)
	}
	// Make the schema older than this program.
	if out, err := server.Psql("postgres", "UPDATE looked_at.schema_version SET version = -1"); err != nil {
		t.Fatal(out)
	}
	for _, args := range looking[:4] {
		s.expect(69, []string{"sema migrate"}, args...)
	}
	if found, err := server.Psql("postgres", "SELECT 'version '||max(version) FROM looked_at.schema_version"); err != nil || !strings.Contains(found, "version -1") {
		t.Errorf("the schema was migrated: %s, %v", found, err)
	}
}

func TestReading_WritesNothingToEtcd(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s := shell{t: t, store: cluster.URL()}
	s.must("ls")
	s.must("run", "x", "-n", "3", "--", "true")
	revision := func() string {
		_, rest, _ := strings.Cut(cluster.Etcdctl("get", "none", "-w", "json"), `"revision":`)
		number, _, _ := strings.Cut(rest, ",")
		return number
	}
	before := revision()
	for _, args := range [][]string{{"ls"}, {"show", "x"}, {"__complete", "show", ""}} {
		s.must(args...)
	}
	s.expect(1, []string{"no semaphore"}, "show", "y")
	if after := revision(); after != before {
		t.Errorf("revision %s became %s", before, after)
	}
}
