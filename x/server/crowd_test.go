package server_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server"
	"github.com/sema-go/sema/x/sqlitestore"
)

// TestDashboard_RanksOverAll uses 2,001 semaphores in the embedded store, the last of which has
// 25 waiters.
func TestDashboard_RanksOverAll(t *testing.T) {
	t.Parallel()
	store, err := sqlitestore.Open(filepath.Join(t.TempDir(), "sema.db"), sqlitestore.Options{Normal: true})
	if err != nil {
		t.Fatal(err)
	}
	config := protocol.Config{Protocol: protocol.Version, Capacity: 1, TTL: 3_600_000_000}
	var wg sync.WaitGroup
	for part := range 20 {
		wg.Go(func() {
			for i := range 100 {
				if _, _, err := store.Open(t.Context(), fmt.Sprintf("a-%02d-%02d", part, i), config, protocol.Opener{Client: protocol.Client{Instance: "crowd"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	session, _, err := store.Open(t.Context(), "zz-hot", config, protocol.Opener{Client: protocol.Client{Instance: "crowd"}})
	if err != nil {
		t.Fatal(err)
	}
	b := protocol.Batch{Session: session, Seq: 1}
	for i := range 26 {
		b.Ops = append(b.Ops, protocol.Op{Verb: protocol.Acquire, Ticket: protocol.Ticket(i + 1), Weight: 1})
	}
	if _, err := store.Apply(t.Context(), "zz-hot", b); err != nil {
		t.Fatal(err)
	}
	s := open(t, store, server.Options{})
	p := s.tab()
	// A busy machine may need more than one change to show all.
	waitFor(t, "it is first on the page", func() bool {
		text := p.get(200, "/ui/").text
		return strings.Contains(text, "<b>25</b> waiting") && strings.Index(text, `id="s:zz-hot"`) > 0 &&
			strings.Index(text, `id="s:zz-hot"`) < strings.Index(text, `id="s:a-`)
	})
	next, end := p.live("sort=waiting")
	defer end()
	for {
		c := next()
		if c.ended {
			t.Fatal("the stream has ended")
		}
		if rows := c.Lists["rows"]; len(rows) > 0 && slices.Index(rows, "s:zz-hot") == 0 && len(rows) == 500 {
			break
		}
	}
}
