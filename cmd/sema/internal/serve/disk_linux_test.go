package serve

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestServe_DiskIsFull checks that a full disk is logged, and that /readyz fails until there is space
// again. It requires the right to mount.
func TestServe_DiskIsFull(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	err := syscall.Mount("tmpfs", directory, "tmpfs", 0, "size=1m")
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(directory, syscall.MNT_DETACH) })
	p := serve(t, directory, "--listen", anywhere)
	ready := func() int {
		a, err := send(http.DefaultClient, "GET", p.url+"/readyz")
		if err != nil {
			t.Fatal(err)
		}
		return a.status
	}
	if status := ready(); status != http.StatusOK {
		t.Fatalf("%d: %s", status, p.log)
	}
	filler := filepath.Join(directory, "filler")
	if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	p.waitFor("it is not ready", func() bool { // the database file may still have free pages
		for range 50 {
			a, err := send(http.DefaultClient, "POST", p.url+"/v1/semaphores/db/leases?capacity=100000&holder="+strings.Repeat("x", 700))
			if err != nil || a.status != http.StatusCreated {
				break
			}
		}
		return ready() == http.StatusServiceUnavailable
	})
	if text := p.log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "full") {
		t.Errorf("not in the log: %s", text)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.waitFor("it is ready again", func() bool { return ready() == http.StatusOK })
}
