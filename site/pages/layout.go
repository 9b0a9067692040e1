package pages

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed assets
var assets embed.FS

var layout = sync.OnceValue(func() *template.Template { return template.Must(template.ParseFS(assets, "assets/page.tmpl")) })

// writeAssets adds the style and the script of the pages.
func (b *builder) writeAssets() error {
	for name, kind := range map[string]string{
		"site.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml",
		"site.js": "text/javascript; charset=utf-8", "search.js": "text/javascript; charset=utf-8", "theme.js": "text/javascript; charset=utf-8",
	} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		b.site.files[path.Join("assets", name)] = file{content, kind}
	}
	return nil
}

// A view is what the layout shows.
type view struct {
	Root           string // from the page to the root of the site
	Play           string
	Page           *page
	Summary        string
	Title, Content template.HTML
	Parts          []part // the contents of the page; nil if it is short
	Sections       []navigation
	Previous, Next *neighbour
	Repository     string
}

// A navigation is a section as seen from a page.
type navigation struct {
	Title string
	Links []neighbour
}

// A neighbour is a link to a page.
type neighbour struct {
	Title, Address  string
	Current, Nested bool
}

// writePages renders all pages.
func (b *builder) writePages() error {
	for i, p := range b.order {
		content, err := p.render()
		if err != nil {
			return err
		}
		root := relative(p.path, "")
		title, rest, _ := strings.Cut(string(content), "</h1>")
		v := view{Root: root, Page: p, Summary: p.summary(), Title: template.HTML(title + "</h1>"), Content: template.HTML(rest), Repository: b.options.Repository}
		if b.options.Play != "" {
			v.Play = root + b.options.Play
		}
		parts := slices.DeleteFunc(slices.Clone(p.contents()), func(of part) bool { return of.Level < 2 || of.Level > 3 || of.Anchor == "" })
		if len(parts) > 2 {
			v.Parts = parts
		}
		for _, s := range b.sections {
			n := navigation{Title: s.Title}
			for _, to := range s.Pages {
				if to.Nested && path.Dir(to.source) != path.Dir(p.source) {
					continue // a directory's pages are listed inside of it
				}
				n.Links = append(n.Links, neighbour{to.Title, relative(p.path, to.path), to == p, to.Nested && to.source != path.Join(path.Dir(to.source), index)})
			}
			v.Sections = append(v.Sections, n)
		}
		if i > 0 {
			v.Previous = &neighbour{b.order[i-1].Title, relative(p.path, b.order[i-1].path), false, false}
		}
		if i+1 < len(b.order) {
			v.Next = &neighbour{b.order[i+1].Title, relative(p.path, b.order[i+1].path), false, false}
		}
		var out bytes.Buffer
		if err := layout().Execute(&out, v); err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		b.site.files[p.path] = file{out.Bytes(), "text/html; charset=utf-8"}
	}
	return nil
}
