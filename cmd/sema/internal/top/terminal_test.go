package top

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/commandtest"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/storetest"
	"github.com/sema-go/sema/internal/storetest/redistest"
)

// A crew uses semaphores while the test watches them.
type crew struct {
	t      *testing.T
	client *fleet.Client
}

func newCrew(t *testing.T, store string) *crew {
	t.Helper()
	client, err := fleet.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		client.Close(ctx, fleet.CloseRelease)
	})
	return &crew{t, client}
}

func (c *crew) semaphore(name string, capacity int64) *fleet.Semaphore {
	c.t.Helper()
	s, err := c.client.Semaphore(name, capacity, fleet.Labels(map[string]string{"team": "night"}))
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func acquire(t *testing.T, s sema.Gate, n int64) sema.Permit {
	t.Helper()
	permit, err := s.Acquire(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return permit
}

// TestTop_Incident checks what an operator on call does: look at holders and waiters, drain after a
// confirmation, revoke a permit, and quit.
func TestTop_Incident(t *testing.T) {
	t.Parallel()
	store := redistest.Shared.Server(t).URL() + "?prefix=incident:"
	crew := newCrew(t, store)
	acquire(t, crew.semaphore("quiet", 5), 1).Release()

	w := commandtest.NewTerminal(t, 80, 24)
	w.Enter("echo this was here before")
	w.AwaitThat("the shell", func(s string) bool { return strings.Count(s, "this was here before") == 2 })
	settings := stty(t, w)
	w.Type("$SEMA top --every 100ms --store '" + store + "'")
	before := w.Await("incident:'")
	w.Press("Enter")
	w.Await("▸ quiet")
	if w.Mode("alternate_on") != "1" {
		t.Error("not full screen")
	}

	// A holder appears, and then a waiter.
	db := crew.semaphore("db", 40)
	permit := acquire(t, db, 38)
	w.AwaitThat("holder", func(s string) bool {
		return regexp.MustCompile(`db +█+[▏▎▍▌▋▊▉]?·* +38/40 +0 +1\b`).MatchString(s)
	})
	rejected := make(chan error, 1)
	go func() {
		_, err := db.Acquire(context.Background(), 5)
		rejected <- err
	}()
	w.AwaitThat("waiter", func(s string) bool { return regexp.MustCompile(`db .* 38/40 +1 +1\b`).MatchString(s) })

	// Show the semaphore and drain it.
	w.Press("Home", "Enter")
	w.Await("▸ holds       38")
	w.Await("#1           5")
	w.Await("team=night")
	w.Press("d")
	w.Await(`Drain "db"? 38 of 40 permits stay in use; 1 waiter and new acquires are rejected`)
	w.Press("n")
	w.Await("nothing was done")
	if s, err := crew.client.Info(t.Context(), "db"); err != nil || s.Config.Draining {
		t.Fatalf("draining without a confirmation: %+v, %v", s.Config, err)
	}
	w.Press("d", "y")
	w.Await("draining")
	if err := <-rejected; err == nil || !strings.Contains(err.Error(), "draining") {
		t.Errorf("the waiter: %v", err)
	}
	if s, err := crew.client.Info(t.Context(), "db"); err != nil || !s.Config.Draining || s.InUse != 38 {
		t.Errorf("%+v, %v", s, err)
	}

	// Revoke the permit. The notification names the operator.
	w.Press("x")
	w.Await("Revoke 38 permits of \"db\", held by ")
	w.Press("y")
	select {
	case <-permit.Lost():
	case <-time.After(20 * time.Second):
		t.Fatal("the holder is not notified")
	}
	if err := permit.Err(); err == nil || !strings.Contains(err.Error(), "sema top") {
		t.Errorf("the holder gets %v", err)
	}
	w.Await("no holders and no waiters")
	w.Press("r", "y")
	w.AwaitThat("open again", func(s string) bool { return !strings.Contains(s, "drained") })

	// The terminal is restored.
	w.Press("q")
	after := w.AwaitThat("the shell", func(s string) bool { return strings.HasSuffix(strings.TrimSpace(s), "\n$") })
	if strings.TrimSuffix(strings.TrimSpace(after), "\n$") != strings.TrimSpace(before) {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if w.Mode("alternate_on") != "0" || w.Mode("cursor_flag") != "1" || w.Mode("mouse_any_flag") != "0" {
		t.Errorf("alternate %s, cursor %s, mouse %s", w.Mode("alternate_on"), w.Mode("cursor_flag"), w.Mode("mouse_any_flag"))
	}
	w.Enter("clear")
	if got := stty(t, w); got != settings {
		t.Errorf("the terminal was %s\nand is %s", settings, got)
	}
}

// stty returns the settings of the terminal.
func stty(t *testing.T, w *commandtest.Terminal) string {
	t.Helper()
	file := t.TempDir() + "/stty"
	w.Enter("stty -g > " + file + "; echo done > " + file + ".done")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file + ".done"); err == nil {
			break
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestTop_SurvivesOutagesAndResizes checks that neither an unreachable store nor a resize ends the
// program.
func TestTop_SurvivesOutagesAndResizes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	crew := newCrew(t, server.URL())
	acquire(t, crew.semaphore("db", 40), 3)
	network := storetest.NewProxy(t, server.Address)
	w := commandtest.NewTerminal(t, 80, 24)
	w.Enter("$SEMA top --every 100ms --store redis://" + network.Address)
	w.Await("▸ db")
	network.SetFault(storetest.Fault{Reject: true})
	network.Cut()
	w.Await("NO REPLY")
	w.Await("▸ db")
	w.Await("connection refused")
	w.Press("d", "y")
	network.Heal()
	w.AwaitThat("a reply", func(s string) bool { return !strings.Contains(s, "NO REPLY") })
	w.Resize(120, 30)
	w.AwaitThat("a wide screen", func(s string) bool {
		first, _, _ := strings.Cut(s, "\n")
		return len(first) > 100
	})
	w.Press("C-c")
	w.AwaitThat("the shell", func(s string) bool { return strings.HasSuffix(strings.TrimSpace(s), "$") })
	if w.Mode("alternate_on") != "0" {
		t.Error("the terminal was not restored")
	}
}

// TestTop_SignalRestoresTheTerminal checks that a signal restores the terminal, too.
func TestTop_SignalRestoresTheTerminal(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"TERM", "INT"} {
		w, file := commandtest.NewTerminal(t, 80, 24), t.TempDir()+"/pid"
		settings := stty(t, w)
		w.Enter("sh -c 'echo $$ > " + file + "; exec $SEMA top --store host:" + t.TempDir() + "'; echo code $?")
		w.Await("no semaphores")
		pid, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("kill", "-"+by, strings.TrimSpace(string(pid))).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		w.Await("code 130")
		if w.Mode("alternate_on") != "0" || w.Mode("cursor_flag") != "1" || stty(t, w) != settings {
			t.Errorf("%s: the terminal was not restored", by)
		}
	}
}

func TestTop_Colours(t *testing.T) {
	t.Parallel()
	store := redistest.Shared.Server(t).URL() + "?prefix=colours:"
	acquire(t, newCrew(t, store).semaphore("db", 4), 2)
	coloured := regexp.MustCompile(`\x1b\[([0-9]+;)*3[0-7][;m]`)
	for variables, want := range map[string]bool{"COLORTERM=": true, "NO_COLOR=1": false} {
		w := commandtest.NewTerminal(t, 80, 24, variables)
		w.Enter("$SEMA top --store '" + store + "'")
		w.Await("▸ db")
		if got := coloured.MatchString(w.Coloured()); got != want {
			t.Errorf("%s: colours %v\n%q", variables, got, w.Coloured())
		}
		w.Press("q")
	}
}

func TestTop_Host(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sem, err := host.Open("compilers", 4, host.Dir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer sem.Close()
	defer acquire(t, sem, 3).Release()
	w := commandtest.NewTerminal(t, 80, 24)
	w.Enter("$SEMA top --every 100ms --store 'host:?dir=" + dir + "'")
	w.AwaitThat("use", func(s string) bool { return regexp.MustCompile(`▸ compilers .* 3/4 +0 +1\b`).MatchString(s) })
	w.Press("d", "y")
	w.Await("draining")
	w.Press("r", "y")
	w.AwaitThat("resumed", func(s string) bool { return !strings.Contains(s, "draining") })
	w.Type("c2")
	w.Press("Enter")
	w.Await(`from 4 to 2? 3 are in use: none is granted until 2 are released.`)
	w.Press("y")
	w.Await("over by 1")
	if stats := sem.Stats(); stats.Capacity != 2 {
		t.Errorf("%+v", stats)
	}
	w.Press("Enter", "x", "y")
	w.Await("is released when the process that holds it ends")
	w.Press("q")
}

func TestTop_RequiresATerminal(t *testing.T) {
	t.Parallel()
	if r := commandtest.Run(t, "top", "--store", "mem:"); r.Code != 64 || !strings.Contains(r.Err, "sema ls -o json") || r.Out != "" {
		t.Errorf("%+v", r)
	}
	if r := commandtest.Run(t, "top", "--every", "1ms"); r.Code != 64 || !strings.Contains(r.Err, "100ms or more") {
		t.Errorf("%+v", r)
	}
	w := commandtest.NewTerminal(t, 80, 24)
	w.Enter("$SEMA top --store redis://" + storetest.Loopback(storetest.Port(t)) + "; echo code $?")
	w.Await("'sema doctor' examines the store")
	w.Await("code 69")
}
