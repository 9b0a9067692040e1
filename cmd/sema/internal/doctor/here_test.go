package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/fleet"
)

func TestDoctor_SQLiteFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sema.db")
	r, code := diagnose(t, "sqlite://"+path)
	r.want(t, "open", fleet.LevelProblem, "does not exist")
	if _, err := os.Stat(path); code != 69 || err == nil {
		t.Errorf("code %d, the file was created: %v", code, err == nil)
	}
	first, err := fleet.Open(t.Context(), "sqlite://"+path)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, code = diagnose(t, "sqlite://"+path)
	r.wantFine(t, code)
	r.want(t, "persistence", fleet.LevelOK, "synchronous is full")
	r, _ = diagnose(t, "sqlite://"+path+"?synchronous=normal")
	r.want(t, "persistence", fleet.LevelWarning, "synchronous is normal")

	owner, err := fleet.Open(t.Context(), "sqlite://"+path)
	if err != nil {
		t.Fatal(err)
	}
	r, code = diagnose(t, "sqlite://"+path)
	r.want(t, "owner", fleet.LevelProblem, "stop the other process")
	if code != 69 {
		t.Errorf("code %d", code)
	}
	wantProtocols(t, owner, path)
}

// TestDoctor_DamagedSQLiteFile damages each page of a file. It checks that the advice for whatever
// then fails consists of the steps of docs/failover.md.
func TestDoctor_DamagedSQLiteFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	intact := filepath.Join(dir, "sema.db")
	first, err := fleet.Open(t.Context(), "sqlite://"+intact)
	if err != nil {
		t.Fatal(err)
	}
	s, err := first.Semaphore("db", 1)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Release()
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(intact)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	files := map[string][]byte{"other": []byte("notes of another program"), "cut": whole[:len(whole)/page/2*page]}
	for at := page; at < len(whole); at += page {
		damaged := slices.Clone(whole)
		damaged[at+3], damaged[at+4] = 0xff, 0xf0 // the number of cells
		files[fmt.Sprint("page ", at/page)] = damaged
	}
	var found sync.Map // the checks that have failed
	t.Run("files", func(t *testing.T) {
		for name, content := range files {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				r, code := diagnose(t, "sqlite://"+path)
				if r.Problems == 0 || code == 0 {
					t.Errorf("code %d: %s", code, r.text())
				}
				for _, f := range r.Findings {
					if f.Level != fleet.LevelProblem {
						continue
					}
					found.Store(f.Check, true)
					for _, step := range []string{"stop the program", "move it away together with the files -wal and -shm", "wait for the longest TTL", "start the program again", "docs/failover.md"} {
						if !strings.Contains(f.Advice, step) {
							t.Errorf("no %q in %+v", step, f)
						}
					}
				}
			})
		}
	})
	for _, check := range []string{"open", "file", "stored", "use"} {
		if _, ok := found.Load(check); !ok {
			t.Errorf("no damage was found by %q", check)
		}
	}
}

// wantProtocols creates semaphores of other protocol versions in the file.
func wantProtocols(t *testing.T, owner *fleet.Client, path string) {
	t.Helper()
	s, err := owner.Semaphore("newer", 1)
	if err != nil {
		t.Fatal(err)
	}
	permit, err := s.Acquire(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	permit.Release()
	raise := func() {
		if err := owner.Configure(t.Context(), "newer", func(c *fleet.Config) { c.Protocol++ }); err != nil {
			t.Fatal(err)
		}
		if err := owner.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	raise()
	r, _ := diagnose(t, "sqlite://"+path)
	r.want(t, "stored", fleet.LevelWarning, "newer (protocol 2); this one (protocol 1) can use them")
	if owner, err = fleet.Open(t.Context(), "sqlite://"+path); err != nil {
		t.Fatal(err)
	}
	raise()
	r, code := diagnose(t, "sqlite://"+path)
	r.want(t, "stored", fleet.LevelProblem, "cannot use newer (protocol 3)")
	if code != 1 {
		t.Errorf("code %d", code)
	}
}

func TestDoctor_Host(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, code := diagnose(t, "host:?dir="+dir)
	r.wantFine(t, code)
	for _, check := range []string{"directory", "system", "container", "use", "stored"} {
		r.want(t, check, fleet.LevelOK, "")
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
	foreign := filepath.Join(dir, "foreign.sema")
	if err := os.WriteFile(foreign, []byte("notes of another program"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, code = diagnose(t, "host:?dir="+dir)
	r.want(t, "files", fleet.LevelWarning, foreign)
	if code != 0 {
		t.Errorf("with a foreign file: exit code %d", code)
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r, _ = diagnose(t, "host:?dir="+dir)
	r.want(t, "directory", fleet.LevelWarning, "chmod o-w")
	r, code = diagnose(t, "host:?dir=/nowhere")
	r.want(t, "directory", fleet.LevelProblem, "name a directory")
	if code != 69 {
		t.Errorf("code %d", code)
	}
}

func TestDoctor_Memory(t *testing.T) {
	t.Parallel()
	r, code := diagnose(t, "mem:")
	r.wantFine(t, code, "persistence")
	r.want(t, "persistence", fleet.LevelWarning, "not visible to other processes")
}

func TestDoctor_Misuse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--store", "host:?colour=blue"}, {"--store", "nosql://x"}, {"--store", "redis://%zz:" + secret + "@x"}, {"-o", "yaml"}, {"--pings", "1"}, {"--ttl", "0s"}, {"more"}, {"--nonsense"},
	} {
		result := commandtest.Run(t, append([]string{"doctor"}, args...)...)
		if result.Code != 64 || result.Out+result.Err == "" || strings.Contains(result.Out+result.Err, secret) {
			t.Errorf("%q: %+v", args, result)
		}
	}
}
