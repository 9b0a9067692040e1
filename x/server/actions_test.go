package server_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/sema-go/sema/x/server"
)

// leases returns the numbers of a semaphore's leases.
func (s *site) leases(name string) (numbers []string) {
	s.t.Helper()
	all, _ := s.want(200, "GET", "/v1/semaphores/"+name, "").body["holders"].([]any)
	for _, l := range all {
		numbers = append(numbers, fmt.Sprintf("%.0f", l.(map[string]any)["lease"]))
	}
	return numbers
}

// TestDashboard_Actions checks that every action asks for confirmation with numbers, is
// performed, and is in the audit log.
func TestDashboard_Actions(t *testing.T) {
	t.Parallel()
	s := start(t, watchers())
	s.auth = "secret-ops"
	for range 3 {
		s.want(201, "POST", "/v1/semaphores/db/leases?capacity=3&holder=job-7", "")
	}
	b := s.tab()
	b.login("secret-ops")
	audited := func(parts ...string) {
		t.Helper()
		for line := range strings.Lines(s.log.String()) {
			missing := 0
			for _, part := range append(parts, "audit", "who=ops", "principal=token:ops", "from=127.0.0.1:", "semaphore=db") {
				if !strings.Contains(line, part) {
					missing++
				}
			}
			if missing == 0 {
				return
			}
		}
		t.Errorf("the log has no %v:\n%s", parts, s.log)
	}
	is := func(key string, want any) {
		t.Helper()
		if got := s.want(200, "GET", "/v1/semaphores/db", "").body[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}

	b.get(200, "/ui/confirm?do=drain&name=db").contains(t, `Drain "db"?`, "3 permits in use stay held", "No acquire is waiting.")
	b.post(200, "/ui/do", form("do", "drain", "name", "db")).contains(t, `Draining "db"`, "Resume…")
	is("draining", true)
	audited("op=drain", "result=done")
	b.get(200, "/ui/confirm?do=resume&name=db").contains(t, `Resume "db"?`, "3 of 3 permits in use")
	b.post(200, "/ui/do", form("do", "resume", "name", "db")).contains(t, `Resumed "db"`, "Drain…")
	is("draining", false)
	audited("op=resume", "result=done")

	asked := b.get(200, "/ui/confirm?do=resize&name=db&capacity=2&ramp=1")
	asked.contains(t, `Set the capacity of "db" from 3 to 2?`, "3 in use: nothing is granted until 2 are released.")
	b.get(200, "/ui/confirm?do=resize&name=db&capacity=9&ramp=2").contains(t, "rises by 2 per second, and is reached in 3s")
	version := fmt.Sprint(s.want(200, "GET", "/v1/semaphores/db", "").body["version"])
	asked.contains(t, `name="version" value="`+version+`"`)
	resize := form("do", "resize", "name", "db", "capacity", "2", "ramp", "1", "version", version)
	b.post(200, "/ui/do", resize).contains(t, `The capacity of "db" is 2`, "over by 1")
	is("capacity", 2.0)
	is("ramp", 1.0)
	audited("op=configure", `capacity\":2`, "result=done")
	b.post(412, "/ui/do", resize).contains(t, "Nothing was done", `"db" was changed in the meantime`)
	for _, bad := range []string{"-1", "", "x", "1.5", "99999999999999999999"} {
		b.post(400, "/ui/do", form("do", "resize", "name", "db", "capacity", bad, "ramp", "0", "version", version)).contains(t, "The capacity is a whole number")
	}

	leases := s.leases("db")
	b.get(200, "/ui/confirm?do=revoke&name=db&lease="+leases[0]).contains(t, `Revoke 1 permit of "db"`, "job-7", "The holder is notified", "This breaks the bound", "more than 2")
	b.post(200, "/ui/do", form("do", "revoke", "name", "db", "lease", leases[0], "why", "it hangs")).contains(t, "The holder is notified", ">revoked<")
	audited("op=revoke", "it hangs", "at once false", "result=done")
	at := form("do", "revoke", "name", "db", "lease", leases[1], "at_once", "1")
	b.post(400, "/ui/do", at).contains(t, "Tick the box first")
	at.Set("sure", "1")
	b.post(200, "/ui/do", at).contains(t, "Revoked at once")
	audited("op=revoke", "at once true", "result=done")
	b.post(404, "/ui/do", at).contains(t, "has already ended")
	b.get(404, "/ui/confirm?do=revoke&name=db&lease="+leases[1]).contains(t, "has already ended")

	b.get(200, "/ui/confirm?do=delete&name=db").contains(t, `Delete "db"?`, "in use by", "lose their leases")
	b.post(400, "/ui/do", form("do", "delete", "name", "db")).contains(t, "Tick the box first")
	b.post(200, "/ui/do", form("do", "delete", "name", "db", "sure", "1")).contains(t, `Deleted "db"`)
	s.want(404, "GET", "/v1/semaphores/db", "")
	audited("op=delete", "result=done")
	b.post(400, "/ui/do", form("do", "dance", "name", "db"))
	b.post(400, "/ui/do", form("do", "drain"))
}

// TestDashboard_ActionsInADialog checks that htmx requests get parts of pages with the same
// texts.
func TestDashboard_ActionsInADialog(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	s.want(201, "POST", "/v1/semaphores/a%2Fb/leases?capacity=1", "")
	b, script := s.tab(), header{"HX-Request", "true"}
	for _, p := range []page{
		b.get(200, "/ui/confirm?"+form("do", "drain", "name", "a/b").Encode(), script),
		b.post(200, "/ui/do", form("do", "drain", "name", "a/b"), script),
		b.post(412, "/ui/do", form("do", "resize", "name", "a/b", "capacity", "4", "ramp", "0", "version", "1"), script),
		b.get(404, "/ui/confirm?do=drain&name=none", script),
		b.get(404, "/ui/confirm?do=revoke&lease=7&"+form("name", "a/b").Encode(), script),
	} {
		if strings.Contains(p.text, "<html") || strings.TrimSpace(p.text) == "" {
			t.Errorf("%s", p.text)
		}
	}
	if got := s.want(200, "GET", "/v1/semaphores/"+url.PathEscape("a/b"), ""); got.body["draining"] != true || got.body["capacity"] != 1.0 {
		t.Errorf("%v", got.body)
	}
}

// TestDashboard_RevokesAGroup checks that the question for a group names its leases, which the form
// then revokes; and that the question alone changes nothing.
func TestDashboard_RevokesAGroup(t *testing.T) {
	t.Parallel()
	s := start(t, server.Options{})
	for i := range 5 {
		s.want(201, "POST", fmt.Sprintf("/v1/semaphores/db/leases?capacity=9&ttl=60s&holder=job-%d", i%2), "")
	}
	b := s.tab()
	ask := func(group string) url.Values {
		return form("do", "revoke-group", "name", "db", "by", "client", "group", group)
	}
	p := b.get(200, "/ui/confirm?"+ask("job-0").Encode())
	p.contains(t, `Revoke 3 permits of "db", 3 holders?`, "job-0", "sema revoke db", "/revoke")
	if strings.Contains(p.text, "job-1") {
		t.Errorf("the question has leases of another group: %s", p.text)
	}
	leases := regexp.MustCompile(`name="leases" value="([0-9,]+)"`).FindStringSubmatch(p.text)
	if leases == nil || strings.Count(leases[1], ",") != 2 {
		t.Fatalf("%q: %s", leases, p.text)
	}
	b.get(200, "/ui/confirm?"+form("do", "revoke-all", "name", "db", "leases", strings.Split(leases[1], ",")[0]).Encode()).contains(t, "1 holder?", "The holder is notified.")
	b.get(404, "/ui/confirm?"+ask("job-7").Encode()).contains(t, "Nothing had to be done")
	b.get(400, "/ui/confirm?"+form("do", "revoke-group", "name", "db", "by", "shoe size", "group", "9").Encode()).contains(t, "not grouped by")
	b.post(400, "/ui/do", ask("job-0")).contains(t, "Nothing was done")
	if got := s.want(200, "GET", "/v1/semaphores/db", ""); got.body["in_use"] != 5.0 || strings.Contains(got.text, `"revoked":true`) {
		t.Errorf("a question has changed something: %s", got.text)
	}
	b.post(200, "/ui/do", form("do", "revoke-all", "name", "db", "leases", leases[1])).contains(t, "3 holders notified")
	if got := s.want(200, "GET", "/v1/semaphores/db", ""); strings.Count(got.text, `"revoked":true`) != 3 {
		t.Errorf("%s", got.text)
	}
}
