package scope

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/fleet"
)

func TestPage_Of(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	for _, c := range []struct {
		page Page
		want []string
		rest Listing
	}{
		{Page{}, names, Listing{}},
		{Page{Limit: 4}, names, Listing{}},
		{Page{Limit: 3}, names[:3], Listing{More: 1, Next: "c"}},
		{Page{After: "b"}, names[2:], Listing{}},
		{Page{After: "bb", Limit: 1}, names[2:3], Listing{More: 1, Next: "c"}}, // deleted in the meantime
		{Page{After: "d", Limit: 1}, nil, Listing{}},
	} {
		if got, rest := c.page.of(names); !slices.Equal(got, c.want) || !reflect.DeepEqual(rest, c.rest) {
			t.Errorf("%+v: %v, %+v, want %v, %+v", c.page, got, rest, c.want, c.rest)
		}
	}
}

// TestState_Declared checks that a configuration without a version is one that a server has only declared.
func TestState_Declared(t *testing.T) {
	t.Parallel()
	for version, want := range map[uint64]bool{0: true, 1: false, 7: false} {
		if got := stateOf("db", fleet.Config{Capacity: 3, Version: version}, 3, 0, 0); got.Declared != want {
			t.Errorf("version %d: declared %v", version, got.Declared)
		}
	}
}

func TestState_Cut(t *testing.T) {
	t.Parallel()
	whole := State{Holders: []Participant{{Lease: 1}, {Lease: 2}, {Lease: 3}}, Waiters: []Participant{{Weight: 1}, {Weight: 2}}}
	if got := whole.Cut(0, 0); !got.Equal(whole) || got.MoreHolders != 0 || got.MoreWaiters != 0 {
		t.Errorf("all: %+v", got)
	}
	if got := whole.Cut(0, 1); len(got.Holders) != 1 || got.MoreHolders != 2 || len(got.Waiters) != 1 || got.MoreWaiters != 1 || got.Waiters[0].Weight != 1 {
		t.Errorf("one: %+v", got)
	}
	if got := whole.Cut(1, 1); len(got.Holders) != 1 || got.Holders[0].Lease != 2 || got.MoreHolders != 1 {
		t.Errorf("after the first: %+v", got)
	}
	if len(whole.Holders) != 3 || whole.Holders[0].Lease != 1 {
		t.Errorf("the state itself was cut: %+v", whole)
	}
}

// TestState_EqualButHeartbeats checks that Equal ignores heartbeats, and nothing else.
func TestState_EqualButHeartbeats(t *testing.T) {
	t.Parallel()
	bound := MaxWaiters(3)
	fresh := func() State {
		return State{
			Name: "x", Kind: "rate", Capacity: 1, Effective: 1, InUse: 1, Free: 1, Waiting: 1, Draining: true, Numbered: true, Declared: true, TTL: 1, Window: 1, Ramp: 1, MaxWaiters: &bound,
			Holders: []Participant{{Lease: 1, Seen: time.Unix(1, 0)}}, Waiters: []Participant{{Weight: 1}}, MoreHolders: 1, MoreWaiters: 1,
		}
	}
	beat := fresh()
	beat.Holders[0].Seen = time.Unix(2, 0)
	if !beat.Equal(fresh()) {
		t.Error("a heartbeat is a change")
	}
	for i := range reflect.TypeFor[State]().NumField() {
		field := reflect.TypeFor[State]().Field(i)
		if field.Name == "MoreHolders" || field.Name == "MoreWaiters" {
			continue // describes the page, not the semaphore
		}
		if field.Name == "Times" {
			continue // ages pass without a change
		}
		changed := fresh()
		reflect.ValueOf(&changed).Elem().Field(i).SetZero()
		if changed.Equal(fresh()) || fresh().Equal(changed) {
			t.Errorf("a change of %s is ignored", field.Name)
		}
	}
}

// TestMaxWaiters_ZeroIsNone checks that in JSON and flags absent is no bound and 0 no waiters, and
// that they are stored as 0 and -1.
func TestMaxWaiters_ZeroIsNone(t *testing.T) {
	t.Parallel()
	for stored, want := range map[int64]string{0: "", sema.NoWaiters: `,"max_waiters":0`, 7: `,"max_waiters":7`} {
		bound := maxWaiters(stored)
		if got := bound.Stored(); got != stored {
			t.Errorf("%d is stored again as %d", stored, got)
		}
		text, err := json.Marshal(State{MaxWaiters: bound})
		if plain := `{"name":"","kind":"","capacity":0,"effective_capacity":0,"in_use":0,"free":0,"waiting":0,"draining":false,"numbered":false` + want + `}`; err != nil || string(text) != plain {
			t.Errorf("%d is %s, want %s; %v", stored, text, plain, err)
		}
	}
	remove := NoBound
	if got := remove.Stored(); got != 0 {
		t.Errorf("no bound is stored as %d", got)
	}
}
