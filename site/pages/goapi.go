package pages

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"go/doc/comment"
	"html/template"
	"strings"
	"sync"
)

// goSource is what documents link to for the library; on the site such a link leads to the
// page that readGo makes. In the navigation it follows goPage.
const (
	goSource = "../doc.go"
	goPage   = "go.md"
)

// A Package is a package of the library.
type Package struct {
	Path    string   `json:"path"`
	Name    string   `json:"name"`
	Doc     string   `json:"doc"`
	Symbols []Symbol `json:"symbols"`
}

// A Symbol is an exported name of a package.
type Symbol struct {
	Name        string `json:"name"` // with its type: Semaphore.Acquire
	Declaration string `json:"declaration"`
	Text        string `json:"text"` // the first sentence of its comment
}

// Title returns the path below the module, or the name of the root package.
func (p Package) Title() string {
	if _, below, ok := strings.Cut(p.Path, "/sema/"); ok {
		return below
	}
	return p.Name
}

//go:embed go.json
var goPackages []byte

//go:embed assets/go.tmpl
var goText string

// Packages returns the packages of the library, as package reference of this module found them
// when go generate ./site ran: a program such as sema serve has no source to read.
var Packages = sync.OnceValue(func() (all []Package) {
	if err := json.Unmarshal(goPackages, &all); err != nil {
		panic(err) // the file is embedded
	}
	return all
})

// readGo makes a page of the packages of the library.
func (b *builder) readGo() error {
	p := &page{source: goSource, path: "symbols.html", Title: "Go symbols", anchors: map[string]bool{}}
	all := b.options.Go
	if all == nil {
		all = Packages()
	}
	var out bytes.Buffer
	functions := template.FuncMap{"doc": func(p Package) template.HTML { return docOf(p, all) }, "anchor": func(p Package, s Symbol) string { return p.Title() + "." + s.Name }}
	if err := template.Must(template.New("go").Funcs(functions).Parse(goText)).Execute(&out, all); err != nil {
		return fmt.Errorf("list of the Go packages: %w", err)
	}
	p.extra = template.HTML(out.String())
	p.parts = []part{{Heading: p.Title, Level: 1}}
	for _, of := range all {
		p.anchors[of.Title()] = true
		synopsis, _, _ := strings.Cut(of.Doc, "\n\n")
		p.parts = append(p.parts, part{Heading: of.Title(), Anchor: of.Title(), Level: 2, text: strings.Join(strings.Fields(synopsis), " ")})
		for _, s := range of.Symbols {
			p.parts = append(p.parts, part{Heading: of.Name + "." + s.Name, Anchor: of.Title() + "." + s.Name, Level: symbolLevel, text: s.Text, code: s.Declaration})
		}
	}
	b.pages[goSource] = p
	return nil
}

// docOf returns the documentation of a package as HTML. Names of symbols lead to their rows.
func docOf(p Package, all []Package) template.HTML {
	var parser comment.Parser
	known := map[string]string{}
	for _, of := range all {
		known[of.Path] = of.Title()
	}
	parser.LookupPackage = func(name string) (string, bool) {
		for _, of := range all {
			if of.Name == name {
				return of.Path, true
			}
		}
		return comment.DefaultLookupPackage(name)
	}
	parser.LookupSym = func(receiver, name string) bool {
		for _, s := range p.Symbols {
			if s.Name == strings.TrimPrefix(receiver+"."+name, ".") {
				return true
			}
		}
		return false
	}
	printer := comment.Printer{HeadingLevel: 3, HeadingID: func(h *comment.Heading) string { return p.Title() + "-" + h.DefaultID() }}
	printer.DocLinkURL = func(link *comment.DocLink) string {
		if link.ImportPath == "" {
			link.ImportPath = p.Path
		}
		title, ok := known[link.ImportPath]
		if !ok {
			return link.DefaultURL("https://pkg.go.dev/")
		}
		if link.Name == "" {
			return "#" + title
		}
		return "#" + strings.ReplaceAll(title+"."+link.Recv+"."+link.Name, "..", ".")
	}
	text := printer.HTML(parser.Parse(p.Doc))
	return template.HTML(bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("<pre>"), []byte(`<div class="code"><pre><code>`)), []byte("</pre>"), []byte("</code></pre></div>")))
}
