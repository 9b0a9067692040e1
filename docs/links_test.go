package docs

import (
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
			if to.Scheme != "" || to.Host != "" {
				continue // of another site
			}
			checked++
			if problem := follow(all, p, to); problem != "" {
				t.Errorf("%s:%d: %s: %s", p.name, line, to, problem)
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d links", checked)
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
