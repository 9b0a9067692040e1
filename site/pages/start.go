package pages

import (
	_ "embed"

	"github.com/yuin/goldmark/ast"
)

// start is what the first page shows above the index of the documents. It is Markdown like the
// documents, so that their tests compile its code.
//
//go:embed assets/start.md
var start string

// startLinks begins the links of start to the documents.
const startLinks = "../../../docs/"

// readStart replaces the index, whose links are the navigation by now, with the first page: what
// Sema is, how to install it, and the index, with headings one level below.
func (b *builder) readStart() error {
	old := b.pages[index]
	p, err := parse(index, append([]byte(start+"\n"), old.text...))
	if err != nil {
		return err
	}
	titles := 0
	for n := range nodes(p.tree) {
		if h, ok := n.(*ast.Heading); ok {
			if h.Level == 1 {
				titles++
			}
			if titles > 1 {
				h.Level++
			}
		}
	}
	b.pages[index], b.order[0] = p, p
	return nil
}
