package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sema-go/sema/fleet"
)

// TestDoctor_FullDisk requires the right to mount.
func TestDoctor_FullDisk(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "size=1m")
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(directory, syscall.MNT_DETACH) })
	store := "sqlite://" + filepath.Join(directory, "sema.db")
	client, err := fleet.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "filler"), make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	r, code := diagnose(t, store)
	for _, f := range r.Findings {
		if f.Level == fleet.LevelProblem && (f.Check == "use" || f.Check == "disk") && f.Advice == causeNamed(t, "disk").advice {
			return
		}
	}
	t.Errorf("code %d: %s", code, r.text())
}

func causeNamed(t *testing.T, check string) cause {
	t.Helper()
	for _, c := range causes {
		if c.check == check {
			return c
		}
	}
	t.Fatalf("no cause %q", check)
	panic("not reached")
}
