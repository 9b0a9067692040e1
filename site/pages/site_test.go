package pages

import (
	"encoding/json"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sema-go/sema/docs"
)

// documents returns a small set of documents, with changes.
func documents(changes map[string]string) fstest.MapFS {
	all := map[string]string{
		"README.md":       "# Index\n\nText.\n\n## Guides\n\n- [One](one.md)\n\n## Learn\n\n- [Lessons](learn/README.md)\n- [HTTP](../x/server/openapi.json)\n- [Go](../doc.go)\n",
		"one.md":          "# One\n\nSee [below](#a-b--c), [lessons](learn/README.md#first), [code](../queue.go) and ![chart](scale/x.svg).\n\n## A *b* & `c`\n\n```go\nx := \"<a>\" // why\n```\n",
		"learn/README.md": "# Lessons\n\n<!-- not shown -->\n\n## First\n\nBack to [one](../one.md).\n",
		"scale/x.svg":     "<svg/>",
	}
	for name, text := range changes {
		all[name] = text
	}
	files := fstest.MapFS{}
	for name, text := range all {
		if text != "" {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
	}
	return files
}

const smallAPI = `{"info": {"title": "T", "description": "D"}, "tags": [{"name": "permits", "description": "P"}],
	"paths": {"/v1/{name}": {"get": {"summary": "Get <it>", "tags": ["permits"], "responses": {"200": {"description": "fine"}}}}}}`

var smallGo = []Package{{
	Path: "github.com/sema-go/sema", Name: "sema", Doc: "Package sema bounds. See [Semaphore.Acquire].\n",
	Symbols: []Symbol{{"Semaphore.Acquire", "func (s *Semaphore) Acquire() Permit", "Acquire waits."}},
}}

func build(t *testing.T, changes map[string]string) (*Site, error) {
	t.Helper()
	return New(Options{Docs: documents(changes), OpenAPI: []byte(smallAPI), Go: smallGo, Play: "play/", Repository: "https://example.org/r"})
}

func mustBuild(t *testing.T) *Site {
	t.Helper()
	s, err := build(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSite_FilesAndLinks(t *testing.T) {
	s := mustBuild(t)
	want := []string{"assets/icon.svg", "assets/search.js", "assets/site.css", "assets/site.js", "assets/theme.js", "http-api.html", "index.html", "learn/index.html", "one.html", "scale/x.svg", "search.json", "symbols.html"}
	if got := s.Paths(); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	for page, wanted := range map[string][]string{
		"one.html": {
			`href="#a-b--c"`, `<h2 id="a-b--c">`, `href="learn/#first"`, `href="https://example.org/r/blob/main/queue.go"`, `src="scale/x.svg"`,
			`<span class="s">&#34;&lt;a&gt;&#34;</span> <span class="c">// why</span>`, `href="./play/"`, `aria-current="page"`, `rel="prev" href="./"`,
		},
		"learn/index.html": {`href="../one.html"`, `href="../assets/site.css"`, `href="../play/"`, `data-root="../"`},
		"http-api.html":    {`<h3 id="get-v1name">`, `Get &lt;it&gt;`},
		"index.html":       {"<h1 id=\"sema\">Sema</h1>", "make install", `<h2 id="index">`, `<h3 id="guides">`},
		"symbols.html":     {`<h2 id="sema">`, `<tr id="sema.Semaphore.Acquire">`},
	} {
		content := string(s.files[page].content)
		for _, w := range wanted {
			if !strings.Contains(content, w) {
				t.Errorf("%s does not contain %s:\n%s", page, w, content)
			}
		}
		if strings.Contains(content, "not shown") {
			t.Errorf("%s contains a note", page)
		}
	}
}

func TestSite_RejectsWhatReadersWouldNotFind(t *testing.T) {
	for what, c := range map[string]struct {
		changes map[string]string
		want    string
	}{
		"a page that is not listed": {map[string]string{"two.md": "# Two\n"}, "docs/two.md"},
		"a missing heading":         {map[string]string{"learn/README.md": "# Lessons\n\n[x](../one.md#none) [f](#first)\n\n## First\n"}, "#none"},
		"a page without a title":    {map[string]string{"one.md": "text\n"}, "docs/one.md: no title"},
		"no index":                  {map[string]string{"README.md": ""}, "no index"},
		"a link out of the repository": {map[string]string{"learn/README.md": "# Lessons\n\n[x](../../../etc/passwd.txt)\n\n## First\n"},
			"out of the repository"},
	} {
		t.Run(what, func(t *testing.T) {
			if _, err := build(t, c.changes); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestSite_Search(t *testing.T) {
	var entries []entry
	if err := json.Unmarshal(mustBuild(t).files["search.json"].content, &entries); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return e.Address == "one.html#a-b--c" })
	if i < 0 || entries[i].Page != "One" || entries[i].Heading != "A b & c" || !strings.Contains(entries[i].Code, "// why") || strings.Contains(entries[i].Text, "why") {
		t.Errorf("entries %+v", entries)
	}
	symbol := entry{Page: "Go symbols", Heading: "sema.Semaphore.Acquire", Address: "symbols.html#sema.Semaphore.Acquire", Text: "Acquire waits.", Code: "func (s *Semaphore) Acquire() Permit", Kind: kindSymbol}
	if !slices.Contains(entries, symbol) {
		t.Errorf("%+v is not in the index: %+v", symbol, entries)
	}
}

func TestTable_HasNoEmptyHeadings(t *testing.T) {
	s, err := build(t, map[string]string{"one.md": "# One\n\n| | |\n|---|---|\n| a | b \\| `c\\|d` |\n\n| | n |\n|:--|--:|\n| x `TestPermit_IsReleasedOnce` `TestPermit_IsReleasedOnceAtEveryScope` | 1 |\n| y |\n| z | 0.75; and 0.67 of something |\n\n| a | b | c |\n|---|---|---|\n| **group** | | |\n\nno | table\n"})
	if err != nil {
		t.Fatal(err)
	}
	content := strings.ReplaceAll(string(s.files["one.html"].content), "\n", "")
	for _, want := range []string{
		`<div class="table"><table><tr><td>a</td><td>b | <code>c|d</code></td></tr></table></div>`,
		`<tr><td align="left"></td><th align="right">n</th></tr><tr><td align="left" class="long">x <code>TestPermit_<wbr>IsReleasedOnce</code> <code>Test<wbr>Permit_<wbr>Is<wbr>Released<wbr>Once<wbr>At<wbr>Every<wbr>Scope</code></td><td align="right">1</td></tr><tr><td align="left">y</td><td align="right"></td></tr><tr><td align="left">z</td><td align="right" class="long">0.75; and 0.67 of something</td></tr></table>`,
		`<tr><th colspan="3" scope="colgroup"><span><strong>group</strong></span></th></tr>`,
		`<p>no | table</p>`,
	} {
		if !strings.Contains(content, want) {
			t.Errorf("the page does not contain %s:\n%s", want, content)
		}
	}
}

func TestDrawing_FitsThePage(t *testing.T) {
	for language, c := range map[string]struct{ code, want string }{
		"":     {strings.Repeat("─", 100) + "\nx\n", " fit104"},
		"text": {"short\n", " fit40"},
		"go":   {strings.Repeat("x", 100), ""},
	} {
		if got := fit(c.code, language); got != c.want {
			t.Errorf("%q of %d bytes: class %q, want %q", language, len(c.code), got, c.want)
		}
	}
}

func TestSite_ServesWhatItWrites(t *testing.T) {
	s, dir := mustBuild(t), t.TempDir()
	if err := s.Write(dir); err != nil {
		t.Fatal(err)
	}
	for address, name := range map[string]string{"/": "index.html", "/learn/": "learn/index.html", "/one.html": "one.html"} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest("GET", address, nil))
		written, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || w.Code != http.StatusOK || w.Body.String() != string(written) {
			t.Errorf("%s: status %d, error %v, or other content than %s", address, w.Code, err, name)
		}
		again := httptest.NewRequest("GET", address, nil)
		again.Header.Set("If-None-Match", w.Header().Get("Etag"))
		w = httptest.NewRecorder()
		if s.ServeHTTP(w, again); w.Code != http.StatusNotModified {
			t.Errorf("%s again: status %d", address, w.Code)
		}
	}
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, httptest.NewRequest("GET", "/../go.mod", nil)); w.Code != http.StatusNotFound {
		t.Errorf("another file: status %d", w.Code)
	}
}

func TestAnchor_LikeGitHub(t *testing.T) {
	for heading, want := range map[string]string{
		"A permit is missing":        "a-permit-is-missing",
		"`sema run`: what & how?":    "sema-run-what--how",
		"See [the guide](guide.md)!": "see-the-guide",
		"Über 2 × 3":                 "über-2--3",
	} {
		if got := anchorOf(heading); got != want {
			t.Errorf("%q: %q, want %q", heading, got, want)
		}
	}
}

func TestHighlight_KeepsTheCode(t *testing.T) {
	for language, code := range map[string]string{
		"go": "func f() {\n\treturn `a\nb` + 'x' // <c>\n}\n…\nx := 1.5\n\"open", "sh": "sema run x -- a#b # c\n#!\n", "text": "<b> &",
	} {
		got := highlight(code, language)
		for _, tag := range []string{`<span class="k">`, `<span class="c">`, `<span class="s">`, `<span class="n">`, "</span>"} {
			got = strings.ReplaceAll(got, tag, "")
		}
		plain := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&amp;", "&").Replace(got)
		if plain != code {
			t.Errorf("%s: %q, want %q", language, plain, code)
		}
	}
}

// TestSite_OfThisRepository checks that the documents have no broken links, and that the
// index lists all of them.
func TestSite_OfThisRepository(t *testing.T) {
	s := mustRender(t)
	for _, name := range s.Paths() {
		if content := string(s.files[name].content); strings.HasSuffix(name, ".html") && (strings.Contains(content, "style=") || strings.Contains(content, "<script>")) {
			t.Errorf("%s contains inline style or script, which its policy forbids", name)
		}
	}
}

var (
	linkOf = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	idOf   = regexp.MustCompile(`id="([^"]*)"`)
)

// TestSite_LinksLead follows the links of all rendered pages, also those that are not written in
// the documents: of the navigation, the API reference and the symbols.
func TestSite_LinksLead(t *testing.T) {
	s := mustRender(t)
	ids := map[string]map[string]bool{}
	for _, name := range s.Paths() {
		ids[name] = map[string]bool{}
		for _, id := range idOf.FindAllStringSubmatch(string(s.files[name].content), -1) {
			if path.Ext(name) == ".html" && ids[name][id[1]] {
				t.Errorf("%s: two elements have the id %q", name, id[1])
			}
			ids[name][id[1]] = true
		}
	}
	checked := 0
	for _, name := range s.Paths() {
		if path.Ext(name) != ".html" {
			continue
		}
		for _, link := range linkOf.FindAllStringSubmatch(string(s.files[name].content), -1) {
			to, err := url.Parse(html.UnescapeString(link[1]))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if to.Scheme != "" {
				continue
			}
			target := name
			if to.Path != "" {
				target = path.Join(path.Dir(name), to.Path)
				if strings.HasSuffix(to.Path, "/") || target == "." {
					target = path.Join(target, "index.html")
				}
			}
			if known, ok := ids[target]; !ok || to.Fragment != "" && !known[to.Fragment] {
				t.Errorf("%s: %s leads nowhere", name, link[1])
			}
			checked++
		}
	}
	if checked < 5000 {
		t.Errorf("%d links", checked)
	}
}

// mustRender renders the documents of this repository.
func mustRender(t *testing.T) *Site {
	t.Helper()
	api, err := os.ReadFile("../../x/server/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{Docs: docs.Files, OpenAPI: api, Repository: docs.Repository})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNavigation_ListsADirectoryInside checks that the pages of a directory with an index are
// listed on its own pages, and on no others.
func TestNavigation_ListsADirectoryInside(t *testing.T) {
	s, err := build(t, map[string]string{
		"learn/README.md": "# Lessons\n\n[Second](second.md)\n\n## First\n",
		"learn/second.md": "# Second lesson\n\nText.\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, listed := range map[string]bool{"learn/index.html": true, "learn/second.html": true, "one.html": false, "index.html": false} {
		_, navigation, _ := strings.Cut(string(s.files[page].content), `<nav id="navigation"`)
		navigation, _, _ = strings.Cut(navigation, "</nav>")
		if got := strings.Contains(navigation, "Second lesson"); got != listed {
			t.Errorf("%s: the second lesson is in the navigation: %t, want %t", page, got, listed)
		}
	}
}
