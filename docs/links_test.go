package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

var (
	link       = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)`)
	target     = regexp.MustCompile(`(?i)(?:href|src)="([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*#*$`)
	inlineCode = regexp.MustCompile("`[^`\n]+`")
	anchor     = regexp.MustCompile(`(?i)<a\s+(?:id|name)="([^"]+)"`)
)

// TestLinks_Lead checks that each relative link of a page leads to a file or directory of
// the repository, and to a heading or line of it.
func TestLinks_Lead(t *testing.T) {
	t.Parallel()
	all := make(map[string]*page)
	for _, p := range pages(t) {
		all[p.name] = p
	}
	checked := 0
	for _, p := range all {
		prose := inlineCode.ReplaceAllStringFunc(p.prose, func(s string) string { return strings.Repeat(" ", len(s)) })
		links := link.FindAllStringSubmatchIndex(prose, -1)
		links = append(links, target.FindAllStringSubmatchIndex(prose, -1)...)
		for _, at := range links {
			line := strings.Count(p.prose[:at[0]], "\n") + 1
			to, err := url.Parse(p.prose[at[2]:at[3]])
			if err != nil {
				t.Errorf("%s:%d: %v", p.name, line, err)
				continue
			}
			checked++
			if to.Scheme != "" || to.Host != "" {
				if problem := external(all, to); problem != "" {
					t.Errorf("%s:%d: %s: %s", p.name, line, to, problem)
				}
				continue
			}
			if problem := follow(all, p, to); problem != "" {
				t.Errorf("%s:%d: %s: %s", p.name, line, to, problem)
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d links", checked)
	}
}

// external returns what is wrong with a link to another site, or "". It opens no connection:
// links into the repository must lead to a file of this checkout, and others must have the
// form of a public address.
func external(all map[string]*page, to *url.URL) string {
	switch {
	case to.Scheme != "https":
		return "want https"
	case !strings.Contains(to.Host, ".") || strings.ContainsAny(to.Host, " _@") || to.User != nil:
		return "no public host name"
	}
	inside, found := strings.CutPrefix(to.Scheme+"://"+to.Host+to.Path, Repository+"/")
	if !found {
		return ""
	}
	kind, rest, _ := strings.Cut(inside, "/")
	switch kind {
	case "blob", "tree":
		_, name, _ := strings.Cut(rest, "/") // the branch is before it
		return follow(all, &page{name: "README.md"}, &url.URL{Path: name, Fragment: to.Fragment})
	case "security", "issues", "pulls", "releases", "discussions":
		return ""
	}
	return "no such part of the repository"
}

// TestLinks_OfConfigurations checks the addresses in the repository that alerts, dashboards,
// workflows, units and Go files contain.
func TestLinks_OfConfigurations(t *testing.T) {
	t.Parallel()
	all := make(map[string]*page)
	for _, p := range pages(t) {
		all[p.name] = p
	}
	address := regexp.MustCompile(regexp.QuoteMeta(Repository) + "/(?:blob|tree)/[\\w./#-]+")
	checked := 0
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != ".github" && strings.HasPrefix(d.Name(), "."), d.Name() == "testdata", d.Name() == "node_modules", d.Name() == "built":
			return fs.SkipDir
		case d.IsDir() || !strings.Contains(" .go .yml .yaml .json .service .html ", " "+path.Ext(name)+" "):
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		for _, found := range address.FindAllString(string(text), -1) {
			to, parsed := url.Parse(strings.TrimRight(found, ".\\"))
			if parsed != nil {
				t.Errorf("%s: %v", name, parsed)
				continue
			}
			checked++
			if problem := external(all, to); problem != "" {
				t.Errorf("%s: %s: %s", name, to, problem)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 10 {
		t.Errorf("%d addresses", checked)
	}
}

func TestExternal_FindsBadAddresses(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"https://pkg.go.dev/net/http/pprof":       true,
		Repository + "/blob/main/doc.go":          true,
		Repository + "/security/advisories/new":   true,
		Repository + "/blob/main/docs/missing.md": false,
		Repository + "/wiki/Home":                 false,
		"http://example.com/":                     false,
		"https://localhost/":                      false,
		"https://user:password@example.com/":      false,
	} {
		to, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if problem := external(nil, to); (problem == "") != good {
			t.Errorf("%s: %q", address, problem)
		}
	}
}

// follow returns what is wrong with a link of a page, or "".
func follow(all map[string]*page, from *page, to *url.URL) string {
	name := from.name
	if to.Path != "" {
		if path.IsAbs(to.Path) {
			return "absolute"
		}
		name = path.Join(path.Dir(from.name), to.Path)
	}
	if name == ".." || strings.HasPrefix(name, "../") {
		return "outside of the repository"
	}
	info, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return "no such file"
	}
	if to.Fragment == "" {
		return ""
	}
	p := all[name]
	if info.IsDir() {
		p = all[path.Join(name, "README.md")]
	}
	if p == nil {
		return "a fragment of a file that is no page"
	}
	if !anchors(p)[to.Fragment] {
		return "no such heading"
	}
	return ""
}

// anchors returns the fragments of a page: those that common hosts derive from its headings,
// and those that it declares.
func anchors(p *page) map[string]bool {
	found := make(map[string]bool)
	seen := make(map[string]int)
	for _, h := range heading.FindAllStringSubmatch(p.prose, -1) {
		s := slug(h[1])
		if n := seen[s]; n > 0 {
			found[s+"-"+strconv.Itoa(n)] = true
		} else {
			found[s] = true
		}
		seen[s]++
	}
	for _, a := range anchor.FindAllStringSubmatch(p.prose, -1) {
		found[a[1]] = true
	}
	return found
}

// slug returns the fragment of a heading: lower case, without punctuation, "-" for spaces.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(heading, "$1")
	var s strings.Builder
	for _, r := range strings.ToLower(heading) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			s.WriteRune(r)
		case r == ' ':
			s.WriteByte('-')
		}
	}
	return s.String()
}

func TestSlug_FollowsHosts(t *testing.T) {
	t.Parallel()
	for heading, want := range map[string]string{
		"Run it for others":                "run-it-for-others",
		"Redis that crashes":               "redis-that-crashes",
		"`sema run`: a command, at most N": "sema-run-a-command-at-most-n",
		"A [link](x.md) in it":             "a-link-in-it",
		"fair_rw - two":                    "fair_rw---two",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%q: %q, want %q", heading, got, want)
		}
	}
}

// TestIndex_LinksEveryPage checks that docs/README.md, or the index of a directory, links to
// each document.
func TestIndex_LinksEveryPage(t *testing.T) {
	t.Parallel()
	all := make(map[string]*page)
	for _, p := range pages(t) {
		all[p.name] = p
	}
	reached := make(map[string]bool)
	for _, index := range []string{"docs/README.md", "docs/learn/README.md", "docs/design/README.md"} {
		for _, l := range link.FindAllStringSubmatch(all[index].prose, -1) {
			to, _, _ := strings.Cut(l[1], "#")
			reached[path.Join(path.Dir(index), to)] = true
		}
	}
	for name := range all {
		if strings.HasPrefix(name, "docs/") && name != "docs/README.md" && !reached[name] {
			t.Errorf("docs/README.md does not link to %s", name)
		}
	}
}

// TestDecisions_HaveOneForm checks that each record of docs/design has a question, a decision
// and what was rejected, and is short.
func TestDecisions_HaveOneForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`(?s)^# [^\n]+\n\n[^\n#].*\?[^\n]*.*\n## Decision\n\n[^\n#].*\n## Rejected\n\n- .*: .*\n$`)
	records := 0
	for _, p := range pages(t) {
		if path.Dir(p.name) != "docs/design" || path.Base(p.name) == "README.md" {
			continue
		}
		records++
		if !form.MatchString(p.text) || len(strings.Fields(p.text)) > 300 {
			t.Errorf("%s: want a title, a question, \"## Decision\", \"## Rejected\" with a list of alternatives and reasons, in at most 300 words", p.name)
		}
	}
	if records < 90 {
		t.Errorf("%d records", records)
	}
}
