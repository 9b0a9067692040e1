package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/pool"
	"github.com/sema-go/sema/rate"
	"github.com/sema-go/sema/registry"
	"github.com/sema-go/sema/wfq"
)

func TestLoad_ChangesWhatCanChange(t *testing.T) {
	t.Parallel()
	r := registry.New()
	db, mail, api := r.Semaphore("db", 40, "why"), rate.New(10, time.Second), wfq.New(64)
	api.Set("paid", wfq.Share{Weight: 2})
	items := pool.New(pool.Config[int]{Size: 8, Open: func(context.Context) (int, error) { return 0, nil }, Close: func(int) {}})
	defer items.Close()
	wide := &stored{capacity: 5}
	r.Add("mail", mail, "why")
	r.Add("api", api, "why")
	r.Add("pool", items, "why")
	r.Add("wide", wide, "why")
	mustLoad(t, r, "\n"+`{"limits": {
		"db":   {"capacity": 20, "why": "until Monday"},
		"mail": {"capacity": 100, "window": "1m"},
		"api":  {"capacity": 32, "classes": {
			"paid": {"weight": 3, "min": 1, "max": 9, "tier": -1, "order": "LIFO", "max_waiters": 0, "max_wait": "1.5s"},
			"free": {"max_waiters": 7}}},
		"pool": {"capacity": 0},
		"wide": {"capacity": 6}
	}}`)
	wantCapacity(t, db, 20)
	wantCapacity(t, api, 32)
	if n, per, _ := mail.Rate(); n != 100 || per != time.Minute {
		t.Errorf("rate %d per %v", n, per)
	}
	if items.Stats().Capacity != 0 || wide.capacity != 6 {
		t.Error("the pool or the shared gate has not changed")
	}
	wantShare(t, api, "paid", wfq.Share{Weight: 3, Min: 1, Max: 9, Tier: -1, Order: wfq.LIFO, MaxWaiters: sema.NoWaiters, MaxWait: 1500 * time.Millisecond})
	wantShare(t, api, "free", wfq.Share{Weight: 1, MaxWaiters: 7})
	l, _ := r.Get("db")
	if !l.Configured || l.Note != "until Monday" || l.Initial.Capacity != 40 || l.Paused() {
		t.Errorf("%+v", l)
	}
	if l, _ := r.Get("pool"); !l.Paused() {
		t.Errorf("not paused: %+v", l)
	}

	// What a later file does not set returns to what the program asked for, except for
	// shared gates.
	free := api.Class("free")
	mustLoad(t, r, `{"limits": {}}`)
	wantCapacity(t, db, 40)
	wantCapacity(t, api, 64)
	if n, per, _ := mail.Rate(); n != 10 || per != time.Second || wide.capacity != 6 || items.Stats().Capacity != 8 {
		t.Errorf("rate %d per %v, shared %d, pool %d", n, per, wide.capacity, items.Stats().Capacity)
	}
	wantShare(t, api, "paid", wfq.Share{Weight: 2})
	wantShare(t, api, "free", wfq.Share{Weight: 1})
	if l, _ := r.Get("db"); l.Configured || l.Note != "" {
		t.Errorf("still configured: %+v", l)
	}
	_, _ = free.TryAcquire(context.Background(), 0) // the class is kept until here
}

func wantShare(t *testing.T, q *wfq.Queue, class string, want wfq.Share) {
	t.Helper()
	for name, st := range q.Classes() {
		if name == class {
			if st.Share != want {
				t.Errorf("class %q: %+v, want %+v", class, st.Share, want)
			}
			return
		}
	}
	t.Errorf("no class %q", class)
}

func TestLoad_LeavesAloneWhatNoFileHasSet(t *testing.T) {
	t.Parallel()
	r := registry.New()
	adaptive, db := r.Semaphore("adaptive", 10, "why"), r.Semaphore("db", 40, "why")
	adaptive.Resize(3)
	mustLoad(t, r, `{"limits": {"db": {"capacity": 20}}}`)
	mustLoad(t, r, `{"limits": {"db": {"why": "only a note"}}}`)
	wantCapacity(t, adaptive, 3)
	wantCapacity(t, db, 40)
}

// TestLoad_RejectsBadFiles checks the position and the text of every kind of problem, and
// that nothing changes.
func TestLoad_RejectsBadFiles(t *testing.T) {
	t.Parallel()
	limit := func(members string) string { return `{"limits": {"db": {` + members + `}}}` }
	class := func(members string) string { return `{"limits": {"api": {"classes": {"paid": {` + members + `}}}}}` }
	for _, tt := range []struct {
		text string
		want []string
	}{
		{``, []string{"1:1: the file is empty"}},
		{" \n ", []string{"the file is empty"}},
		{`{"limits": {`, []string{"1:12: not JSON: unexpected end of JSON input"}},
		{"{\"limits\": {\n  \"db\": {\"capacity\": 4,}}}", []string{"2:24: not JSON"}},
		{`{"limits": {}} {}`, []string{"1:16: not JSON", "after top-level value"}},
		{"{\"limits\": {\"d\xffb\": {}}}", []string{"1:15: not UTF-8"}},
		{`[]`, []string{"1:1: the file is an array: want an object"}},
		{`null`, []string{"1:1: the file is null"}},
		{`{}`, []string{`1:1: no key "limits"`}},
		{`{"limit": {}}`, []string{`1:2: unknown key "limit": want "limits"`}},
		{`{"Limits": {}}`, []string{`unknown key "Limits"`}},
		{`{"limits": 1}`, []string{`1:12: "limits" is 1: want an object`}},
		{`{"limits": {}, "limits": {}}`, []string{`1:16: "limits" occurs twice in the file`}},
		{`{"limits": {"db": {}, "d\u0062": {}}}`, []string{`1:23: "db" occurs twice in "limits"`}},
		{`{"limits": {"dbb": {"capacity": 1}}}`, []string{`1:13: "dbb": no such limit: did you mean "db"?`}},
		{`{"limits": {"unrelated": {}}}`, []string{`registered are ["api" "count" "db" "mail"]`}},
		{`{"limits": {"db": 40}}`, []string{`1:19: "db" is 40: want an object`}},
		{limit(`"capacity": -1`), []string{`1:32: "db": capacity is -1: want a whole number from 0 to`}},
		{limit(`"capacity": 4.0`), []string{"whole number"}},
		{limit(`"capacity": 4e1`), []string{"whole number"}},
		{limit(`"capacity": 1e999`), []string{"not JSON"}},
		{limit(`"capacity": 9223372036854775808`), []string{"whole number"}},
		{limit(fmt.Sprintf(`"capacity": %d`, int64(sema.MaxCapacity)+1)), []string{fmt.Sprintf("from 0 to %d", int64(sema.MaxCapacity))}},
		{limit(`"capacity": "40"`), []string{"capacity is a string"}},
		{limit(`"capacity": null`), []string{"capacity is null"}},
		{limit(`"capacity": true`), []string{"capacity is true"}},
		{limit(`"capacity": NaN`), []string{"not JSON"}},
		{limit(`"capacity": 1, "capacity": 2`), []string{`1:35: "capacity" occurs twice in "db"`}},
		{limit(`"Capacity": 1`), []string{`unknown key "Capacity": want capacity, window, classes or why`}},
		{limit(`"max_wait": "5s"`), []string{`"db": max_wait is fixed when the gate is created`}},
		{limit(`"why": 1`), []string{"why is 1: want a string"}},
		{limit(`"capacity": 1, "window": "1s"`), []string{`1:45: "db": window is set, but a sema.Semaphore has no rate`}},
		{limit(`"window": 5`), []string{"window is 5: want a duration", "no rate"}},
		{limit(`"classes": {}`), []string{"classes are set, but a sema.Semaphore has none"}},
		{`{"limits": {"count": {"capacity": 1}}}`, []string{"that of a sema.Counter is fixed"}},
		{`{"limits": {"mail": {"capacity": 1}}}`, []string{`1:13: "mail": a rate is set by capacity and window together`}},
		{`{"limits": {"mail": {"window": "1s"}}}`, []string{"together"}},
		{`{"limits": {"mail": {"capacity": 0, "window": "1s"}}}`, []string{"capacity is 0"}},
		{`{"limits": {"mail": {"capacity": 1, "window": "0s"}}}`, []string{`window is "0s"`}},
		{`{"limits": {"mail": {"capacity": 1, "window": "-1s"}}}`, []string{`window is "-1s"`}},
		{`{"limits": {"mail": {"capacity": 1, "window": "99999h"}}}`, []string{`window is "99999h"`}},
		{`{"limits": {"mail": {"capacity": 1, "window": "soon"}}}`, []string{`window is "soon"`}},
		{class(`"weight": 0`), []string{`"api": class "paid": weight is 0: want a whole number from 1 to 1000000`}},
		{class(`"min": 5, "max": 4`), []string{"min is 5, above max, which is 4"}},
		{class(`"max": 0`), []string{"max is 0"}},
		{class(`"order": "fifo"`), []string{`order is "fifo": want one of [FIFO LIFO CoDel AdaptiveLIFO]`}},
		{class(`"order": 1`), []string{"order is 1: want a string"}},
		{class(`"max_waiters": -1`), []string{"max_waiters is -1"}},
		{class(`"max_wait": "0s"`), []string{`max_wait is "0s"`}},
		{class(`"tier": 1.5`), []string{"tier is 1.5"}},
		{class(`"size": 1`), []string{`unknown key "size"`}},
		{`{"limits": {"é": {}, "dbx": {}}}`, []string{`1:13: "é"`, `1:22: "dbx"`}},
		{`{"limits": {"api": {"classes": 3}}}`, []string{`"api": classes is 3: want an object`}},
		{strings.Repeat(" ", 1<<20) + `{}`, []string{"more than 1048576 bytes"}},
		{"{\"limits\": {\n\"dbb\": {},\n\"db\": {\"capacity\": -1, \"size\": 2}}}", []string{"3 problems", "2:1:", "3:20:", `3:24: "db": unknown key`}},
	} {
		r := registry.New()
		db, mail, api := r.Semaphore("db", 40, "why"), rate.New(10, time.Second), wfq.New(64)
		r.Add("mail", mail, "why")
		r.Add("api", api, "why")
		r.Add("count", sema.NewCounter(0, 3), "why")
		mustLoad(t, r, `{"limits": {"db": {"capacity": 30}}}`)
		err := load(t, r, tt.text)
		if err == nil {
			t.Errorf("%.80q: accepted", tt.text)
			continue
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%.80q: error %q, want it to contain %q", tt.text, err, part)
			}
		}
		wantCapacity(t, db, 30)
		wantCapacity(t, api, 64)
		if n, per, _ := mail.Rate(); n != 10 || per != time.Second {
			t.Errorf("%.80q: the rate is %d per %v", tt.text, n, per)
		}
		if l, _ := r.Get("db"); !l.Configured {
			t.Errorf("%.80q: the settings of the last file are gone", tt.text)
		}
	}
}

// TestLoad_ReportsOfHugeFilesAreBounded: to quote a long name for each of many keys would take
// minutes.
func TestLoad_ReportsOfHugeFilesAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	long := strings.Repeat("x", 400_000)
	for name, c := range map[string]struct {
		text, want string
		problems   int
	}{
		"number":       {`{"limits": {"db": {"capacity": ` + strings.Repeat("9", 900_000) + `}}}`, "not JSON", 1},
		"name":         {`{"limits": {"` + long + `": {` + many(40_000, `"k%d": 1,`) + `}}}`, "has 400000 bytes", 1},
		"key":          {`{"limits": {"db": {"` + long + `": 1}}}`, "unknown key", 1},
		"class":        {`{"limits": {"db": {"classes": {"` + long + `": {` + many(40_000, `"k%d": 1,`) + `}}}}}`, "has 400000 bytes", 1},
		"keys":         {`{"limits": {"db": {` + many(50_000, `"k%d": 1,`) + `}}}`, "unknown key", 1000},
		"names":        {`{"limits": {` + many(50_000, `"unknown%d": {},`) + `}}`, "no such limit", 1000},
		"nested":       {strings.Repeat("[", 900_000), "not JSON", 1},
		"control code": {`{"limits": {"a\u0000b": {}}}`, "not visible", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := registry.New()
			r.Semaphore("db", 1, "test")
			err := load(t, r, c.text)
			var fault *registry.LoadError
			if !errors.As(err, &fault) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%.300v", err)
			}
			if len(fault.Problems) < c.problems || len(fault.Problems) > 1001 || len(err.Error()) > 50_000 {
				t.Errorf("%d problems, %d bytes of text", len(fault.Problems), len(err.Error()))
			}
			if _, page := get(r, "GET", "/"); len(page) > 100_000 {
				t.Errorf("the page has %d bytes", len(page))
			}
		})
	}
}

func TestLoad_ErrorsCanBeBranchedOn(t *testing.T) {
	t.Parallel()
	r := registry.New()
	err := load(t, r, `{"limits": {"a": {}, "b": {}}}`)
	var fault *registry.LoadError
	if !errors.As(err, &fault) || len(fault.Problems) != 2 || !errors.Is(err, sema.ErrInvalid) || !strings.Contains(sema.Hint(err), "correct the file") {
		t.Errorf("error %v, hint %q", err, sema.Hint(err))
	}
	if !strings.Contains(err.Error(), "none is registered yet") {
		t.Errorf("error %v", err)
	}
	err = r.Load(filepath.Join(t.TempDir(), "missing.json"))
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, sema.ErrInvalid) || strings.Contains(sema.Hint(err), "correct the file") {
		t.Errorf("error %v, hint %q", err, sema.Hint(err))
	}
	if err = r.Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: error %v", err)
	}
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, `"n%d": {}, `, i)
	}
	err = load(t, r, `{"limits": {`+strings.TrimSuffix(many.String(), ", ")+`}}`)
	if lines := strings.Count(err.Error(), "\n"); lines != 21 || !strings.Contains(err.Error(), "and 980 more") {
		t.Errorf("%d lines: %.200s", lines, err)
	}
}

func TestLoad_SharedGatesAreChangedFirstAndReverted(t *testing.T) {
	t.Parallel()
	r := registry.New()
	a, b, c, local := &stored{capacity: 1}, &stored{capacity: 2}, &stored{capacity: 3}, r.Semaphore("local", 10, "why")
	r.Add("a", a, "why")
	r.Add("b", b, "why")
	r.Add("c", c, "why")
	b.fail = errStore
	err := load(t, r, `{"limits": {"local": {"capacity": 20}, "a": {"capacity": 5}, "b": {"capacity": 5}, "c": {"capacity": 5}}}`)
	if !errors.Is(err, errStore) || errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), `"b": the store is away`) ||
		!strings.Contains(err.Error(), `"b": revert to 2 failed`) {
		t.Errorf("error %v", err)
	}
	wantCapacity(t, local, 10)
	if !slices.Equal(a.sets, []int64{5, 1}) || !slices.Equal(b.sets, []int64{5, 2}) || c.sets != nil {
		t.Errorf("changes %v %v %v", a.sets, b.sets, c.sets)
	}
	if l, _ := r.Get("local"); l.Configured {
		t.Error("the settings of a rejected file are kept")
	}
	b.fail = nil
	mustLoad(t, r, `{"limits": {"a": {"capacity": 5}, "b": {"capacity": 5}}}`)
	mustLoad(t, r, `{"limits": {"a": {"capacity": 5}, "b": {"capacity": 6}}}`)
	if !slices.Equal(a.sets, []int64{5, 1, 5}) || !slices.Equal(b.sets, []int64{5, 2, 5, 6}) {
		t.Errorf("changes %v %v: what has not changed is not stored again", a.sets, b.sets)
	}
	b.capacity = 9 // another process changed it
	mustLoad(t, r, `{"limits": {"b": {"capacity": 6}}}`)
	if b.capacity != 6 {
		t.Errorf("capacity %d, want 6", b.capacity)
	}
}

func TestLoad_UnknownCapacityIsNotReverted(t *testing.T) {
	t.Parallel()
	r := registry.New()
	wide := &stored{fail: errStore}
	r.Add("wide", wide, "why")
	if err := load(t, r, `{"limits": {"wide": {"capacity": 5}}}`); err == nil || !slices.Equal(wide.sets, []int64{5}) {
		t.Errorf("error %v, changes %v: a revert to 0 would pause all machines", err, wide.sets)
	}
}

func TestAdd_AppliesASettingToSharedGates(t *testing.T) {
	t.Parallel()
	var log journal
	r := registry.New(registry.Log(log.logger()))
	r.Expect("wide", "away")
	mustLoad(t, r, `{"limits": {"wide": {"capacity": 5}, "away": {"capacity": 5}}}`)
	wide, away := &stored{capacity: 1}, &stored{capacity: 1, fail: errStore}
	r.Add("wide", wide, "why")
	r.Add("away", away, "why")
	if l, _ := r.Get("wide"); l.Problem != nil || wide.capacity != 5 {
		t.Errorf("%+v", l)
	}
	if l, _ := r.Get("away"); !errors.Is(l.Problem, errStore) || log.count("not in force") != 1 {
		t.Errorf("%+v, logged %s", l, log.buf.String())
	}
	away.fail = nil
	mustLoad(t, r, `{"limits": {"away": {"capacity": 5}}}`)
	if l, _ := r.Get("away"); l.Problem != nil || away.capacity != 5 {
		t.Errorf("%+v", l)
	}
}

func TestMaxChange_RejectsLostDigits(t *testing.T) {
	t.Parallel()
	r := registry.New(registry.MaxChange(10))
	db, mail := r.Semaphore("db", 1, "why"), rate.New(1, time.Second)
	r.Add("mail", mail, "why")
	wide := &stored{capacity: 1}
	r.Add("wide", wide, "why")
	const first = `{"limits": {"db": {"capacity": 400}, "mail": {"capacity": 1000, "window": "1s"}, "wide": {"capacity": 100}}}`
	mustLoad(t, r, first) // from 1 to 400: the first file is exempt
	for _, text := range []string{
		`{"limits": {"db": {"capacity": 39}, "mail": {"capacity": 1000, "window": "1s"}}}`,
		`{"limits": {"db": {"capacity": 4001}, "mail": {"capacity": 1000, "window": "1s"}}}`,
		`{"limits": {"db": {"capacity": 400}, "mail": {"capacity": 1000, "window": "1m"}}}`,
		`{"limits": {"mail": {"capacity": 1000, "window": "1s"}}}`, // back to 1
	} {
		if err := load(t, r, text); err == nil || !strings.Contains(err.Error(), "more than a factor of 10") {
			t.Errorf("%s: error %v", text, err)
		}
	}
	wantCapacity(t, db, 400)
	for _, n := range []int64{40, 0, 4000, 40000} {
		mustLoad(t, r, fmt.Sprintf(`{"limits": {"db": {"capacity": %d}, "mail": {"capacity": 60000, "window": "1m"}}}`, n))
		wantCapacity(t, db, n)
	}
}

// TestLoad_AcceptsWhatQueuesAccept holds the bounds of the format to those of package wfq,
// where Set panics beyond them.
func TestLoad_AcceptsWhatQueuesAccept(t *testing.T) {
	t.Parallel()
	r := registry.New()
	r.Add("api", wfq.New(4), "why")
	mail := rate.New(1, time.Second)
	r.Add("mail", mail, "why")
	mustLoad(t, r, fmt.Sprintf(`{"limits": {"api": {"classes": {
		"a": {"weight": 1000000, "min": %[1]d, "max": %[1]d, "tier": 1000000, "order": "AdaptiveLIFO", "max_waiters": 2147483647, "max_wait": "8784h"},
		"": {"tier": -1000000, "order": "CoDel", "max_wait": "1ns"}}},
		"mail": {"capacity": %[1]d, "window": "8784h"}}}`, int64(sema.MaxCapacity)))
	mustLoad(t, r, fmt.Sprintf(`{"limits": {"mail": {"capacity": %d, "window": "1ns"}}}`, int64(sema.MaxCapacity)))
	if n, _, _ := mail.Rate(); n != min(sema.MaxCapacity, math.MaxInt64) {
		t.Errorf("rate %d", n)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(`{"limits": {"db": {"capacity": 20}, "mail": {"capacity": 5, "window": "1s"}}}`)
	f.Add(`{"limits": {"api": {"capacity": 9, "classes": {"paid": {"weight": 3, "order": "LIFO"}}}, "db": {"capacity": 1}}}`)
	f.Add(`{"limits": {"db": {"capacity": -1}}}`)
	f.Add(`{"limits": {"db": {"capacity": 1, "why": "\ud800"}}} `)
	f.Add("\ufeff{\"limits\": {}}")
	path := filepath.Join(f.TempDir(), "limits.json")
	f.Fuzz(func(t *testing.T, text string) {
		r := registry.New()
		db, mail, api := r.Semaphore("db", 40, "why"), rate.New(10, time.Second), wfq.New(64)
		r.Add("mail", mail, "why")
		r.Add("api", api, "why")
		state := func() string {
			n, per, _ := mail.Rate()
			classes := 0
			for range api.Classes() {
				classes++
			}
			return fmt.Sprint(db.Stats().Capacity, n, per, api.Stats().Capacity, classes)
		}
		before := state()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := r.Load(path)
		l, _ := r.Get("db")
		m, _ := r.Get("mail")
		a, _ := r.Get("api")
		if err == nil && (l.Problem != nil || m.Problem != nil || a.Problem != nil) {
			t.Errorf("accepted, but not in force: %v %v %v", l.Problem, m.Problem, a.Problem)
		}
		if err != nil && (state() != before || l.Configured || m.Configured || a.Configured) {
			t.Errorf("rejected (%v), but the state is %s, was %s", err, state(), before)
		}
		var fault *registry.LoadError
		if err != nil && errors.As(err, &fault) {
			lines := strings.Count(text, "\n") + 1
			for _, p := range fault.Problems {
				if p.Line > lines || p.Line > 0 && p.Column < 1 || p.Text == "" {
					t.Errorf("problem %+v of %d lines", p, lines)
				}
			}
		}
	})
}
