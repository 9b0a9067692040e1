package pages

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Options are what a site consists of.
type Options struct {
	Docs       fs.FS     // the documents, with README.md as the index
	OpenAPI    []byte    // describes the HTTP API; nil: the site has no API reference
	Go         []Package // the packages of the library; nil: those of [Packages]
	Play       string    // address of the playground, relative to the site; "": none
	Repository string    // address of the source code, for links to other files
}

// A Site is a set of rendered files.
type Site struct {
	files map[string]file // by path, with slashes
}

// A file is a part of a site as it is sent.
type file struct {
	content []byte
	kind    string // media type
}

// New renders the documents. It fails if a page is not in the index, or if a link leads to
// a page or heading that does not exist.
func New(o Options) (*Site, error) {
	b := &builder{options: o, pages: map[string]*page{}, site: &Site{files: map[string]file{}}}
	for _, step := range []func() error{b.readPages, b.readAPI, b.readGo, b.readIndex, b.readStart, b.checkLinks, b.copyImages, b.writeAssets, b.writePages, b.writeSearch} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return b.site, nil
}

// Paths returns the paths of all files, sorted.
func (s *Site) Paths() []string { return slices.Sorted(maps.Keys(s.files)) }

// Write writes the site into a directory, which it creates if necessary. Other files in the
// directory stay.
func (s *Site) Write(dir string) error {
	for _, name := range s.Paths() {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, s.files[name].content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// A builder holds what the steps of New share.
type builder struct {
	options  Options
	pages    map[string]*page // by path of the source, such as "learn/README.md"
	sections []section        // the navigation
	order    []*page          // the pages in the order of the navigation
	site     *Site
}

// A section is a part of the navigation.
type section struct {
	Title string
	Pages []*page
}

const index = "README.md"

// readPages parses all documents.
func (b *builder) readPages() error {
	return fs.WalkDir(b.options.Docs, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		source, err := fs.ReadFile(b.options.Docs, name)
		if err != nil {
			return err
		}
		p, err := parse(name, source)
		if err != nil {
			return err
		}
		b.pages[name] = p
		return nil
	})
}

// readIndex makes the navigation from the links of the index, below its headings. The pages
// of a directory that has an index of its own follow that.
func (b *builder) readIndex() error {
	first := b.pages[index]
	if first == nil {
		return errors.New("no index: docs/" + index + " is missing")
	}
	b.order = []*page{first}
	listed := map[*page]bool{first: true}
	var add func(p *page, title string)
	add = func(p *page, title string) {
		if p == nil || listed[p] {
			return
		}
		listed[p] = true
		if n := len(b.sections); n == 0 || b.sections[n-1].Title != title {
			b.sections = append(b.sections, section{Title: title})
		}
		last := &b.sections[len(b.sections)-1]
		last.Pages = append(last.Pages, p)
		b.order = append(b.order, p)
		if p.source == goPage {
			add(b.pages[goSource], title)
		}
		if path.Base(p.source) != index {
			return
		}
		for _, at := range p.outline() {
			if name := p.resolve(at.link); at.heading == "" && path.Dir(name) == path.Dir(p.source) && b.pages[name] != nil {
				b.pages[name].Nested = true
				add(b.pages[name], title)
			}
		}
	}
	title := ""
	for _, at := range first.outline() {
		if at.heading != "" {
			title = at.heading
			continue
		}
		add(b.pages[first.resolve(at.link)], title)
	}
	var missing []string
	for name, p := range b.pages {
		if !listed[p] {
			missing = append(missing, path.Clean("docs/"+name))
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("pages that docs/%s does not link to: %s", index, strings.Join(missing, ", "))
	}
	return nil
}

// checkLinks rewrites the links of all pages, and fails if one leads nowhere.
func (b *builder) checkLinks() error {
	var all []error
	for _, name := range slices.Sorted(maps.Keys(b.pages)) {
		all = append(all, b.pages[name].rewriteLinks(b.target)...)
	}
	return errors.Join(all...)
}

// target returns the address on the site for a link of a page.
func (b *builder) target(from *page, link string) (string, error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link, nil
	}
	if from.source == index {
		link = strings.TrimPrefix(link, startLinks)
	}
	_, fragment, _ := strings.Cut(link, "#")
	name := from.resolve(link)
	if to := b.pages[name]; to != nil {
		if fragment != "" && !to.anchors[fragment] {
			return "", fmt.Errorf("docs/%s: %s has no heading #%s", from.source, cmp.Or(name, from.source), fragment)
		}
		address := relative(from.path, to.path)
		if to == from && fragment != "" {
			address = ""
		}
		if fragment != "" {
			address += "#" + fragment
		}
		return address, nil
	}
	if _, err := fs.Stat(b.options.Docs, name); err == nil && path.Ext(name) != "" && !strings.HasPrefix(name, "..") {
		return relative(from.path, name), nil
	}
	inRepository := path.Clean(path.Join("docs", name))
	if strings.HasPrefix(inRepository, "..") {
		return "", fmt.Errorf("docs/%s: %s leads out of the repository", from.source, link)
	}
	address := strings.TrimSuffix(b.options.Repository, "/") + "/blob/main/" + inRepository
	if fragment != "" {
		address += "#" + fragment
	}
	return address, nil
}

// copyImages adds the images that are next to the documents.
func (b *builder) copyImages() error {
	return fs.WalkDir(b.options.Docs, ".", func(name string, d fs.DirEntry, err error) error {
		kind := map[string]string{".svg": "image/svg+xml", ".png": "image/png"}[path.Ext(name)]
		if err != nil || d.IsDir() || kind == "" {
			return err
		}
		content, err := fs.ReadFile(b.options.Docs, name)
		b.site.files[name] = file{content, kind}
		return err
	})
}

// relative returns the address of a file as seen from a page of the site.
func relative(from, to string) string {
	up := strings.Repeat("../", strings.Count(from, "/"))
	return cmp.Or(up+strings.TrimSuffix(to, "index.html"), "./")
}
