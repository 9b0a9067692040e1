package pgstore

import (
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
)

// TestStore_NumbersAfterAllReleasesOfABatch sends an acquire and then a release in one
// batch. The acquire gets the number that the release frees, because permits are granted
// when the whole batch is applied.
func TestStore_NumbersAfterAllReleasesOfABatch(t *testing.T) {
	t.Parallel()
	s := sessiontest.Begin(t, openIn(t, newSchema(), Options{}), "a", protocol.Config{Capacity: 3, Numbered: true})
	lease := s.Granted(1, sessiontest.Acquire(1, 1))[0]
	results := s.Send(sessiontest.Acquire(2, 1), sessiontest.Release(lease)).Results
	if len(results) != 1 || results[0].Slots != "0" {
		t.Errorf("%+v, want slot 0", results)
	}
}

// TestSlots_MatchTheProtocol checks that the SQL functions for slots do what those of
// package protocol do.
func TestSlots_MatchTheProtocol(t *testing.T) {
	t.Parallel()
	store := openIn(t, newSchema(), Options{})
	text := func(expression string, arguments ...any) (got string) {
		t.Helper()
		c, err := store.pool.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Release()
		if _, err := c.Exec(ctx, "SET search_path = "+store.options.Schema); err != nil {
			t.Fatal(err)
		}
		if err := c.QueryRow(ctx, "SELECT "+expression, arguments...).Scan(&got); err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return got
	}
	for _, test := range []struct{ expression, want string }{
		{"take_slots(B'0000', 2)", "(1100,0-1)"},
		{"take_slots(B'0000', 4)", "(1111,0-3)"},
		{"take_slots(B'0100', 3)", `(1111,"0,2-3")`},
		{"take_slots(B'1011', 1)", "(1111,1)"},
		{"take_slots(B'01010101', 3)", `(11111101,"0,2,4")`},
		{"free_slots(B'1111', '0,2-3')", "0100"},
		{"free_slots(B'1111', '')", "1111"},
		{"cut_slots('0-3,7', 1)", "(0-3,7)"},
		{"cut_slots('0-3,7', 2)", `(0-2,"3,7")`},
		{"cut_slots('0-3,7', 4)", `(0,"1-3,7")`},
		{"cut_slots('0-1,5-9', 3)", `("0-1,5-6",7-9)`},
		{"cut_slots('5', 1)", `("",5)`},
	} {
		if got := text("(" + test.expression + ")::text"); got != test.want {
			t.Errorf("%s = %s, want %s", test.expression, got, test.want)
		}
	}
	// Slots that are not free are not granted.
	if _, err := store.pool.Exec(ctx, "SELECT "+store.options.Schema+".take_slots(B'1111', 1)"); codeOf(err) != "XX001" {
		t.Errorf("take_slots without a free slot: %v, want an error", err)
	}
	// The largest semaphore takes all of its slots at once.
	s := sessiontest.Begin(t, store, "a", protocol.Config{Capacity: protocol.MaxNumbered, Numbered: true})
	results := s.Send(sessiontest.Acquire(1, protocol.MaxNumbered)).Results
	if len(results) != 1 || results[0].Slots != "0-1023" {
		t.Errorf("%+v, want all slots", results)
	}
}
