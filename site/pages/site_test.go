package pages

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/sema-go/sema/docs"
)

// documents returns a small set of documents, with changes.
func documents(changes map[string]string) fstest.MapFS {
	all := map[string]string{
		"README.md":       "# Index\n\nText.\n\n## Guides\n\n- [One](one.md)\n\n## Learn\n\n- [Lessons](learn/README.md)\n- [HTTP](../x/server/openapi.json)\n",
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

func build(t *testing.T, changes map[string]string) (*Site, error) {
	t.Helper()
	return New(Options{Docs: documents(changes), OpenAPI: []byte(smallAPI), Play: "play/", Repository: "https://example.org/r"})
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
	want := []string{"assets/icon.svg", "assets/site.css", "assets/site.js", "http-api.html", "index.html", "learn/index.html", "one.html", "scale/x.svg", "search.json"}
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
	if i < 0 || entries[i].Page != "One" || entries[i].Heading != "A b & c" || !strings.Contains(entries[i].Text, "// why") {
		t.Errorf("entries %+v", entries)
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
