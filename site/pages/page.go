package pages

import (
	"bytes"
	"fmt"
	"html/template"
	"path"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A page is a document.
type page struct {
	source  string // path of the source in docs
	path    string // path on the site
	Title   string
	Nested  bool // listed by the index of its directory
	anchors map[string]bool
	tree    ast.Node
	text    []byte        // the source
	extra   template.HTML // rendered content of a page that has no source
	parts   []part        // of a page that has no source
}

// A part is what a heading and the text below it contain, for the search and the contents
// of a page.
type part struct {
	Heading string
	Anchor  string
	Level   int
	text    string
	code    string // what its blocks of code and declarations contain
}

// symbolLevel is the level of a part that is a symbol of a Go package: search finds it, and
// the contents of the page do not list it.
const symbolLevel = 7

// markdown is made on first use: a program that contains the documents rarely renders them.
var markdown = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithParagraphTransformers(util.Prioritized(tableParser{}, 200))),
		// The documents are part of the repository, so their HTML is trusted.
		goldmark.WithRendererOptions(html.WithUnsafe(), renderer.WithNodeRenderers(util.Prioritized(codeRenderer{}, 100), util.Prioritized(tableRenderer{}, 100))),
	)
})

// parse reads a document.
func parse(name string, source []byte) (*page, error) {
	p := &page{source: name, path: strings.TrimSuffix(name, ".md") + ".html", anchors: map[string]bool{}, text: source}
	if path.Base(name) == index {
		p.path = path.Join(path.Dir(name), "index.html")
	}
	p.tree = markdown().Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchorIDs{p.anchors}))))
	var comments []ast.Node
	for n := range nodes(p.tree) {
		switch n := n.(type) {
		case *ast.Heading:
			if p.Title == "" && n.Level == 1 {
				p.Title = p.plain(n)
			}
		case *ast.HTMLBlock:
			if n.HTMLBlockType == ast.HTMLBlockType2 {
				comments = append(comments, n) // notes for tests and generators
			}
		}
	}
	for _, n := range comments {
		n.Parent().RemoveChild(n.Parent(), n)
	}
	if p.Title == "" {
		return nil, fmt.Errorf("docs/%s: no title: want a line that begins with #", name)
	}
	return p, nil
}

// nodes iterates over a tree in the order of the text.
func nodes(root ast.Node) func(yield func(ast.Node) bool) {
	return func(yield func(ast.Node) bool) {
		_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
			if entering && !yield(n) {
				return ast.WalkStop, nil
			}
			return ast.WalkContinue, nil
		})
	}
}

// An item of an outline is a heading or a link.
type item struct{ heading, link string }

// outline returns the headings of the second level and the links of the page, in order.
func (p *page) outline() (items []item) {
	for n := range nodes(p.tree) {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 2 {
				items = append(items, item{heading: p.plain(n)})
			}
		case *ast.Link:
			items = append(items, item{link: string(n.Destination)})
		}
	}
	return items
}

// resolve returns the path in docs that a link leads to, without its fragment.
func (p *page) resolve(link string) string {
	link, _, _ = strings.Cut(link, "#")
	if link == "" {
		return p.source
	}
	name := path.Join(path.Dir(p.source), link)
	if strings.HasSuffix(link, "/") || path.Ext(name) == "" {
		return path.Join(name, index)
	}
	return name
}

// rewriteLinks replaces the targets of all links and images.
func (p *page) rewriteLinks(target func(from *page, link string) (string, error)) (failures []error) {
	rewrite := func(destination []byte) []byte {
		address, err := target(p, string(destination))
		if err != nil {
			failures = append(failures, err)
		}
		return []byte(address)
	}
	if p.tree == nil {
		return nil
	}
	for n := range nodes(p.tree) {
		switch n := n.(type) {
		case *ast.Link:
			n.Destination = rewrite(n.Destination)
		case *ast.Image:
			n.Destination = rewrite(n.Destination)
		}
	}
	return failures
}

// render returns the HTML of the page.
func (p *page) render() (template.HTML, error) {
	if p.tree == nil {
		return p.extra, nil
	}
	var out bytes.Buffer
	if err := markdown().Renderer().Render(&out, p.text, p.tree); err != nil {
		return "", fmt.Errorf("docs/%s: %w", p.source, err)
	}
	return template.HTML(out.String()), nil
}

// contents returns the parts of the page.
func (p *page) contents() []part {
	if p.tree == nil {
		return p.parts
	}
	parts := []part{{Heading: p.Title, Level: 1}}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if h, ok := n.(*ast.Heading); ok {
			if h.Level > 1 {
				id, _ := h.AttributeString("id")
				anchor, _ := id.([]byte)
				parts = append(parts, part{Heading: p.plain(h), Anchor: string(anchor), Level: h.Level})
			}
			continue
		}
		last := &parts[len(parts)-1]
		last.text = strings.TrimSpace(last.text + " " + p.plain(n))
		last.code = strings.TrimSpace(last.code + " " + p.code(n))
	}
	return parts
}

// code returns what the blocks of code in a node contain.
func (p *page) code(root ast.Node) string {
	var out strings.Builder
	for n := range nodes(root) {
		if n.Kind() == ast.KindCodeBlock || n.Kind() == ast.KindFencedCodeBlock {
			for i := range n.Lines().Len() {
				line := n.Lines().At(i)
				out.Write(line.Value(p.text))
			}
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// plain returns the text of a node without markup and without blocks of code. Cells of a table
// are separated by dots.
func (p *page) plain(root ast.Node) string {
	var out strings.Builder
	for n := range nodes(root) {
		switch n := n.(type) {
		case *ast.Text:
			out.Write(n.Segment.Value(p.text))
			if n.SoftLineBreak() || n.HardLineBreak() {
				out.WriteByte(' ')
			}
		case *ast.String:
			out.Write(n.Value)
		case *tables.TableCell:
			if n.PreviousSibling() != nil && n.FirstChild() != nil {
				out.WriteString(" ·")
			}
			out.WriteByte(' ')
		default:
			if n != root && n.Type() == ast.TypeBlock {
				out.WriteByte(' ')
			}
		}
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// summary returns the first paragraph, for the description of the page.
func (p *page) summary() string {
	if p.tree == nil {
		return ""
	}
	for n := p.tree.FirstChild(); n != nil; n = n.NextSibling() {
		if n.Kind() == ast.KindParagraph {
			return p.plain(n)
		}
	}
	return ""
}
