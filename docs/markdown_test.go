package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the directory of the checkout, as seen from this package.
const root = ".."

// A page is one Markdown file.
type page struct {
	name   string // path from the root, with slashes
	text   string
	prose  string // the text with its code replaced by spaces, for links and headings
	blocks []*block
}

// A block is one fenced block of a page.
type block struct {
	page *page
	line int    // of its first line of content
	lang string // "" for plain text
	code string
	note string // the HTML comment right before it, without <!-- -->; "": none
}

func (b *block) where() string { return fmt.Sprintf("%s:%d", b.page.name, b.line) }

// following returns the next block of the page, or nil.
func (b *block) following() *block {
	i := slices.Index(b.page.blocks, b) + 1
	if i == len(b.page.blocks) {
		return nil
	}
	return b.page.blocks[i]
}

// output returns the text that the block is documented to print, and whether there is any.
func (b *block) output() (string, bool) {
	if next := b.following(); next != nil && next.note == noteOutput {
		return next.code, true
	}
	return "", false
}

var (
	fence   = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")
	comment = regexp.MustCompile(`(?s)<!--\s*((?:[^-]|-[^-])*?)\s*-->\s*$`)
)

// parse reads the blocks of a page.
func parse(name, text string) *page {
	p := &page{name: name, text: text}
	prose := []byte(text)
	blank := func(from, to int) {
		for i := from; i < to; i++ {
			if prose[i] != '\n' {
				prose[i] = ' '
			}
		}
	}
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		b := &block{
			page: p,
			line: strings.Count(text[:at[0]], "\n") + 2,
			lang: text[at[2]:at[3]],
			code: text[at[4]:at[5]],
		}
		if c := comment.FindStringSubmatch(text[:at[0]]); c != nil {
			b.note = c[1]
		} else {
			b.note = elsewhere(name, b)
		}
		p.blocks = append(p.blocks, b)
		blank(at[0], at[1])
	}
	p.prose = string(prose)
	return p
}

// pages returns the pages that are checked: the documents, and the Markdown files that lie
// beside the code.
func pages(t testing.TB) []*page {
	t.Helper()
	var all []*page
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && name != ".github" && strings.HasPrefix(d.Name(), "."), d.Name() == "testdata", d.Name() == "node_modules":
			return fs.SkipDir
		case !d.IsDir() && path.Ext(name) == ".md":
			text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				return err
			}
			all = append(all, parse(name, strings.ReplaceAll(string(text), "\r\n", "\n")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("%d pages", len(all))
	}
	return all
}

// blocksOf yields the blocks of a language in all pages.
func blocksOf(t testing.TB, lang string) (blocks []*block) {
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			if b.lang == lang {
				blocks = append(blocks, b)
			}
		}
	}
	if len(blocks) == 0 {
		t.Fatalf("no block of %s", lang)
	}
	return blocks
}
