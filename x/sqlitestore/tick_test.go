package sqlitestore

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/proctest"
	"github.com/sema-go/sema/internal/sessiontest"
)

// shortTTL is a TTL that tests can wait for.
const shortTTL = protocol.Micros(300 * time.Millisecond / time.Microsecond)

// awaitInUse waits until the file contains the given number of permits in use. It reads
// the file instead of calling the store, because a request would advance the clock.
func awaitInUse(t *testing.T, path, want string) {
	t.Helper()
	shell := proctest.Need(t, "sqlite3", "sqlite3")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		out, err := exec.Command(shell, "-readonly", path, "SELECT in_use FROM semaphores").CombinedOutput()
		if got := strings.TrimSpace(string(out)); err == nil && got == want {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("%s in use, %v; want %s", got, err, want)
		}
	}
}

func TestStore_ExpiresSessionsWithoutRequests(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	sessiontest.Begin(t, store, "jobs", protocol.Config{Capacity: 1, TTL: shortTTL}).Granted(1, sessiontest.Acquire(1, 1))
	awaitInUse(t, path, "0")
	op := sessiontest.Acquire(1, 1)
	op.Try = true
	sessiontest.Begin(t, store, "jobs", protocol.Config{Capacity: 1, TTL: shortTTL}).Granted(1, op)
}

func TestStore_ExpiresSessionsAfterARestart(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	store := openAt(t, path, Options{})
	sessiontest.Begin(t, store, "jobs", protocol.Config{Capacity: 1, TTL: shortTTL}).Granted(1, sessiontest.Acquire(1, 1))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, Options{}) // no client uses it
	awaitInUse(t, path, "0")
}
