package server_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server"
)

// TestDeclared_GoClientsSeeThemBeforeTheirFirstUse lists, reads and configures declared semaphores
// that no client has used yet.
func TestDeclared_GoClientsSeeThemBeforeTheirFirstUse(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{
		Declared: []server.Declaration{{Name: "ci-a", Capacity: 1}, {Name: "ci-c", Capacity: 3}, {Name: "pool", Capacity: 2}, {Name: "ci-x*", Capacity: 4}, {Name: "ci-xy", Capacity: 5}, {Name: "z", Capacity: 6}},
		Tokens: []server.Token{
			{Name: "all", Hash: server.HashToken("secret-all"), Verbs: server.Verbs()},
			{Name: "ci", Hash: server.HashToken("secret-ci"), Prefix: "ci-", Verbs: []server.Verb{server.Read}},
			{Name: "other", Hash: server.HashToken("secret-other"), Prefix: "other-", Verbs: []server.Verb{server.Read}},
		},
	})
	operator, ci := s.dial("?token=secret-all"), s.dial("?token=secret-ci")
	use := func(name string) {
		t.Helper()
		sem, err := operator.Semaphore(name, 9)
		if err != nil {
			t.Fatal(err)
		}
		p, err := sem.Acquire(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
	}
	use("ci-b") // not declared
	use("ci-c")
	for what, c := range map[string]struct {
		client *fleet.Client
		prefix string
		want   string
	}{
		"all":                            {operator, "", "[ci-a ci-b ci-c ci-xy pool z]"},
		"a prefix":                       {operator, "p", "[pool]"},
		"a token with a prefix":          {ci, "", "[ci-a ci-b ci-c ci-xy]"},
		"and a longer prefix":            {ci, "ci-c", "[ci-c]"},
		"a prefix of others":             {ci, "pool", "[]"},
		"a token without any semaphores": {s.dial("?token=secret-other"), "", "[]"},
	} {
		if names, err := c.client.List(t.Context(), c.prefix); err != nil || fmt.Sprint(names) != c.want {
			t.Errorf("%s: %v, %v; want %s", what, names, err, c.want)
		}
	}
	info, err := ci.Info(t.Context(), "ci-xy")
	if err != nil || info.Config.Capacity != 4 || info.Effective != 4 || info.InUse != 0 || len(info.Holders) != 0 { // the first match counts
		t.Errorf("%+v, %v", info, err)
	}
	for _, name := range []string{"ci-xz", "ci-x*"} {
		if _, err := ci.Info(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := ci.Resize(t.Context(), "ci-a", 7); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("configured without the verb: %v", err)
	}
	if a := s.want(200, "GET", "/v1/semaphores/ci-a", "", header{"Authorization", "Bearer secret-all"}); a.body["version"] != 0.0 {
		t.Errorf("a denied change has created it: %v", a.body)
	}
	if err := operator.Resize(t.Context(), "ci-a", 7); err != nil {
		t.Error(err)
	}
	if info, err := ci.Info(t.Context(), "ci-a"); err != nil || info.Config.Capacity != 7 {
		t.Errorf("%+v, %v", info, err)
	}
	if a := s.want(200, "GET", "/v1/semaphores/ci-a", "", header{"Authorization", "Bearer secret-all"}); a.body["capacity"] != 7.0 {
		t.Errorf("%v", a.body)
	}
}

// TestDeclared_Pages lists declared and other semaphores page by page.
func TestDeclared_Pages(t *testing.T) {
	t.Parallel()
	var declared []server.Declaration
	var want []string
	for i := range 30 {
		name := fmt.Sprintf("s-%02d", i)
		want = append(want, name)
		if i%3 != 0 {
			declared = append(declared, server.Declaration{Name: name, Capacity: 1})
		}
	}
	slices.Reverse(declared)
	s := start(t, server.Options{Declared: declared})
	for i := 0; i < len(want); i += 2 { // of the declared ones, some
		s.want(201, "POST", "/v1/semaphores/"+want[i]+"/leases?capacity=1", "")
	}
	for i := 3; i < len(want); i += 6 { // all that are not declared
		s.want(201, "POST", "/v1/semaphores/"+want[i]+"/leases?capacity=1", "")
	}
	store, err := fleet.OpenStore(t.Context(), strings.Replace(s.url, "http:", "sema:", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	unused, err := store.Inspect(t.Context(), "s-01")
	if err != nil {
		t.Fatal(err)
	}
	unused.Config.Capacity = 5
	if err := store.Administer(t.Context(), "s-01", fleet.Command{Configure: &unused.Config}); err != nil {
		t.Error(err)
	}
	if err := store.Administer(t.Context(), "s-01", fleet.Command{Configure: &unused.Config}); !errors.Is(err, protocol.ErrConflict) {
		t.Errorf("a change of a configuration that was replaced: %v", err)
	}
	for _, limit := range []int{1, 4, 7, 29, 30, 31} {
		var names []string
		for one, err := range fleet.Summaries(t.Context(), store, protocol.ListQuery{Prefix: "s-", Limit: limit}) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, one.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("pages of %d: %v", limit, names)
		}
	}
}

// TestDeclared_JSONClientsSeeThemBeforeTheirFirstUse lists, reads, watches, drains and changes declared
// semaphores that were never used.
func TestDeclared_JSONClientsSeeThemBeforeTheirFirstUse(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{Declared: []server.Declaration{{Name: "a", Capacity: 1}, {Name: "b", Capacity: 2}, {Name: "c", Capacity: 3}, {Name: "d-*", Capacity: 4}}})
	var names []string
	for _, one := range s.want(200, "GET", "/v1/semaphores", "").body["semaphores"].([]any) {
		names = append(names, one.(map[string]any)["name"].(string))
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Fatalf("listed: %v, want a, b and c", names)
	}
	s.want(404, "GET", "/v1/semaphores/d-1", "")
	seen := s.want(200, "GET", "/v1/semaphores/a", "")
	if seen.header.Get("ETag") != `"0"` || seen.body["capacity"] != 1.0 {
		t.Errorf("a: %v, ETag %s", seen.body, seen.header.Get("ETag"))
	}
	s.want(412, "PUT", "/v1/semaphores/a", `{"capacity": 5}`, header{"If-Match", `"1"`})
	changed := s.want(201, "PUT", "/v1/semaphores/a", `{"capacity": 5}`, header{"If-Match", `"0"`})
	if changed.body["capacity"] != 5.0 {
		t.Errorf("a: %v, want capacity 5", changed.body)
	}
	s.want(412, "PUT", "/v1/semaphores/a", `{"capacity": 6}`, header{"If-Match", `"0"`})
	s.want(201, "PUT", "/v1/semaphores/b", `{"capacity": 6}`, header{"If-None-Match", "*"})
	if drained := s.want(200, "POST", "/v1/semaphores/c/drain", ""); drained.body["draining"] != true {
		t.Errorf("c: %v, want it to drain", drained.body)
	}
	if now := s.want(200, "GET", "/v1/semaphores/c", ""); now.body["draining"] != true {
		t.Errorf("c: %v, want it to drain", now.body)
	}
}
