package main

import (
	"context"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"

	_ "github.com/sema-go/sema/x/stores"
)

// hostile is a text that another user may write into a command line, a label or a name: an escape
// sequence, C1 controls, a bidirectional override, a line break, and more text than fits a screen.
var hostile = "evil\x1b]0;owned\x07\x1b[2J\u009b31m\u202etxet\u2066\nsema: forged\r\x7f" + strings.Repeat("long ", 2000)

// checkPrintable fails if a text contains characters that a terminal interprets, forged lines, or
// lines that are too long to read.
func checkPrintable(t *testing.T, what, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%s writes %q:\n%.300q", what, r, text)
			return
		}
	}
	if !strings.Contains(text, "evil") {
		t.Errorf("%s does not show the text:\n%.300q", what, text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "sema: forged") || len(line) > 3000 {
			t.Errorf("%s writes a line of %d bytes: %.100s", what, len(line), line)
		}
	}
}

// TestCommands_HostileCommandLine tests command lines of other users' processes.
func TestCommands_HostileCommandLine(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	holder := s.start("run", "x", "-n", "1", "--", "sh", "-c", "echo held; cat", hostile)
	holder.line()
	for _, args := range [][]string{{"show", "x"}, {"show", "x", "-o", "wide"}} {
		checkPrintable(t, strings.Join(args, " "), s.must(args...))
	}
	watch := s.start("watch", "x", "-o", "wide")
	watch.line()
	checkPrintable(t, "watch", watch.line())
	waiter := s.start("run", "x", "--", "true")
	eventually(t, "the notice", func() bool { return strings.Contains(waiter.err.text(), "evil") })
	checkPrintable(t, "run", waiter.err.text())

	out := s.must("show", "x", "-o", "json")
	for _, r := range out {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("show -o json writes %q", r)
		}
	}
	// On a host, other users write the file that the text is read from, so the library
	// already makes it printable.
	about := decode[state](t, out).Holders[0].About
	if !strings.Contains(about, "evil") || strings.ContainsFunc(about, unicode.IsControl) {
		t.Errorf("JSON has %.300q", about)
	}
}

// TestCommands_HostileStore tests clients that write to the store directly.
func TestCommands_HostileStore(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	store, err := fleet.OpenStore(ctx, s.store)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, name := range []string{"x", hostile} {
		session, _, err := store.Open(ctx, name, protocol.Config{Protocol: protocol.Version, Capacity: 1, TTL: 60_000_000}, protocol.Opener{Client: protocol.Client{Instance: hostile}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Apply(ctx, name, protocol.Batch{Session: session, Seq: 1, Ops: []protocol.Op{
			{Verb: protocol.Acquire, Ticket: 1, Weight: 1, Details: &protocol.Details{Holder: hostile}}, {Verb: protocol.Acquire, Ticket: 2, Weight: 1, Details: &protocol.Details{Holder: hostile}},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"ls"}, {"ls", "-o", "wide"}, {"show", "x"}, {"show", "x", "-o", "wide"}} {
		checkPrintable(t, strings.Join(args, " "), s.must(args...))
	}
	s.must("rm", "--yes", hostile)
	watch := s.start("watch", "x", "-o", "wide")
	watch.line()
	checkPrintable(t, "watch", watch.line())
	waiter := s.start("run", "x", "--", "true")
	eventually(t, "the notice", func() bool { return strings.Contains(waiter.err.text(), "evil") })
	checkPrintable(t, "run", waiter.err.text())
}

// TestCommands_HostileErrors tests texts of servers and operators.
func TestCommands_HostileErrors(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	r := s.run("show", hostile)
	checkPrintable(t, "show of a hostile name", r.err)

	holder := holding(s, "x", "-n", "1", "--ttl", "2s")
	lease := s.show("x").Holders[0].Lease
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	store, err := fleet.OpenStore(ctx, s.store)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Administer(ctx, "x", fleet.Command{Revoke: &fleet.Revocation{Lease: protocol.Seq(lease), By: hostile[:40]}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-holder.ended:
	case <-time.After(eventTimeout):
		t.Fatal("the revoked command is still running")
	}
	checkPrintable(t, "run that is revoked", holder.err.text())
}
