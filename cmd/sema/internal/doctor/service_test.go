package doctor

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/memstore"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/waitfor"
	"github.com/sema-go/sema/x/server"
)

// service starts a server that accepts the given tokens, or any client if there are none. It
// returns its addresses for browsers and for Go clients.
func service(t *testing.T, tokens ...server.Token) (http, sema string) {
	t.Helper()
	s, err := server.New(memstore.New(), server.Options{Tokens: tokens, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewUnstartedServer(s)
	listening.Config.Protocols = protocols()
	listening.Start()
	t.Cleanup(func() {
		_ = s.Close(context.Background())
		listening.Close()
	})
	return listening.URL, strings.Replace(listening.URL, "http:", "sema:", 1)
}

func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// A claimed store makes a client claim to run in a process of its own.
type claimed struct {
	fleet.Store
	process int64
}

func (c claimed) Open(ctx context.Context, name string, config protocol.Config, by protocol.Opener) (protocol.Session, protocol.Config, error) {
	by.Client.Process = c.process
	return c.Store.Open(ctx, name, config, by)
}

// TestDoctor_DeadlockOverAService checks that doctor and the dashboard report two processes that
// wait for each other.
func TestDoctor_DeadlockOverAService(t *testing.T) {
	t.Parallel()
	browser, url := service(t)
	var clients [3]*fleet.Client
	for i := 1; i < len(clients); i++ {
		s, err := fleet.OpenStore(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		clients[i] = fleet.New(claimed{s, int64(1000 + i)})
		t.Cleanup(func() { _ = clients[i].Close(context.Background(), fleet.CloseAbandon) })
	}
	acquire := func(process int, name string) {
		s, err := clients[process].Semaphore(name, 1, fleet.TTL(time.Minute))
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = s.Acquire(t.Context(), 1) // the end of the test ends the wait
	}
	acquire(1, "a")
	acquire(2, "b")
	go acquire(1, "b")
	go acquire(2, "a")
	wanted := []string{"process 1001 of", "process 1002 of", "holds a", "holds b"}
	var r report
	waitFor(t, "doctor reports the deadlock", func() bool {
		r, _ = diagnose(t, url)
		return slices.ContainsFunc(r.Findings, func(f fleet.Finding) bool { return f.Check == "deadlock" && f.Level == fleet.LevelWarning })
	})
	for _, text := range wanted {
		r.want(t, "deadlock", fleet.LevelWarning, text)
	}
	waitFor(t, "the dashboard reports the deadlock", func() bool {
		response, err := http.Get(browser + "/ui/")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		page, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(wanted, func(text string) bool { return !strings.Contains(strings.ToLower(string(page)), text) })
	})
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

// TestDeadlockFindings_OfAnIncompleteSearch checks that what was not read is reported, whatever was
// found.
func TestDeadlockFindings_OfAnIncompleteSearch(t *testing.T) {
	t.Parallel()
	cycle := waitfor.Cycle{Steps: []waitfor.Step{{Client: "x", Holds: "a", Waits: "b"}}}
	for _, found := range [][]waitfor.Cycle{nil, {cycle}} {
		all := deadlockFindings(found, 200, 17)
		if last := all[len(all)-1]; len(all) != len(found)+1 || last.Level != fleet.LevelWarning || !strings.Contains(last.Seen, "17 more were not read") {
			t.Errorf("%+v", all)
		}
	}
	if all := deadlockFindings(nil, 3, 0); len(all) != 1 || all[0].Level != fleet.LevelOK || all[0].Seen != "none among 3 semaphores with waiters" {
		t.Errorf("%+v", all)
	}
}

// TestDoctor_Service checks that the store behind a service is examined.
func TestDoctor_Service(t *testing.T) {
	t.Parallel()
	_, url := service(t)
	r, code := diagnose(t, url)
	if code != 0 {
		t.Errorf("code %d: %s", code, r.text())
	}
	r.want(t, "use", fleet.LevelOK, "")
	r.want(t, "deadlock", fleet.LevelOK, "none among 0 semaphores")
	r.want(t, "clock", fleet.LevelOK, "within")
	r.want(t, "persistence", fleet.LevelWarning, "in the memory")
}

// TestOpenFinding_StoreBehindAService checks that the advice leads to the store of the server.
func TestOpenFinding_StoreBehindAService(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("sema service at h:1: %w: cannot reach redis at r:1: connection refused", sema.ErrUnavailable)
	stopped := fmt.Errorf("sema service at h:1: %w: redis at r:1 did not reply in time", sema.ErrUnavailable)
	unresponsive := fmt.Errorf("%w: the sema service at h:1 did not reply: %w", sema.ErrUnavailable, context.DeadlineExceeded)
	for _, c := range []struct {
		url      string
		err      error
		check    string
		isStores bool
	}{
		{"sema://h:1", away, "open", true}, {"semas://h:1", away, "open", true}, {"redis://h:1", away, "open", false},
		{"sema://h:1", stopped, "open", true}, {"sema://h:1", unresponsive, "reply", false},
	} {
		u, err := store.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if f := openFinding(u, c.err); f.Check != c.check || strings.Contains(f.Advice, "store of the server") != c.isStores {
			t.Errorf("%s: %+v", c.url, f)
		}
	}
}

// TestDoctor_Tokens checks that the advice about a missing, a wrong and a weak token is about the
// token.
func TestDoctor_Tokens(t *testing.T) {
	t.Parallel()
	hash := func(token string) string { return server.HashToken(secret + token) }
	_, url := service(t,
		server.Token{Name: "reader", Hash: hash("reader"), Verbs: []server.Verb{server.Read}},
		server.Token{Name: "ci", Hash: hash("ci"), Prefix: "ci-", Verbs: server.Verbs()},
		server.Token{Name: "worker", Hash: hash("worker"), Verbs: []server.Verb{server.Acquire}},
	)
	for query, want := range map[string]struct{ check, seen, advice string }{
		"":                            {"authenticate", "requires a token", "set SEMA_TOKEN"},
		"?token=" + secret + "old":    {"authenticate", "rejects the token", "check that SEMA_TOKEN"},
		"?token=" + secret + "worker": {"authenticate", `token "worker" lacks the verb read`, "ask the operator"},
		"?token=" + secret + "reader": {"use", `token "reader" lacks the verb acquire`, "ask the operator"},
		"?token=" + secret + "ci":     {"settings", `token "ci" reads only semaphores with the prefix "ci-"`, "ask the operator"},
	} {
		r, code := diagnose(t, url+query)
		i := slices.IndexFunc(r.Findings, func(f fleet.Finding) bool { return f.Check == want.check && f.Level == fleet.LevelProblem })
		if i < 0 || code == 0 {
			t.Errorf("%s: code %d, no problem %q in %s", want.seen, code, want.check, r.text())
			continue
		}
		f := r.Findings[i]
		if !strings.Contains(f.Seen, want.seen) || !strings.HasPrefix(f.Advice, want.advice) || !strings.HasSuffix(f.Advice, "'sema doctor' needs a token with all verbs and without a prefix") {
			t.Errorf("%+v, want %+v", f, want)
		}
	}
}
