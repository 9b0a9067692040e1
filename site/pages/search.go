package pages

import (
	"encoding/json"
	"slices"
)

// An entry of the search is a part of a page.
type entry struct {
	Page    string `json:"page"`
	Heading string `json:"heading,omitempty"`
	Address string `json:"address"`
	Text    string `json:"text"`
	Code    string `json:"code,omitempty"`
	Kind    string `json:"kind,omitempty"` // kindSymbol, kindInside or ""
}

// The kinds of entries that search.js ranks apart.
const (
	kindSymbol = "symbol" // of a Go package
	kindInside = "inside" // of a page about how Sema works: after those about its use
)

// inside are the sections of the index whose pages are about how Sema works.
var inside = []string{"How it works"}

// writeSearch adds the index of the search.
func (b *builder) writeSearch() error {
	kinds := map[*page]string{}
	for _, s := range b.sections {
		if slices.Contains(inside, s.Title) {
			for _, p := range s.Pages {
				kinds[p] = kindInside
			}
		}
	}
	var entries []entry
	for _, p := range b.order {
		for i, of := range p.contents() {
			e := entry{Page: p.Title, Address: p.path, Text: of.text, Code: of.code, Kind: kinds[p]}
			if i > 0 {
				e.Heading = of.Heading
			}
			if of.Anchor != "" {
				e.Address += "#" + of.Anchor
			}
			if of.Level == symbolLevel {
				e.Kind = kindSymbol
			}
			entries = append(entries, e)
		}
	}
	content, err := json.Marshal(entries)
	b.site.files["search.json"] = file{content, "application/json"}
	return err
}
