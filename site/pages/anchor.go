package pages

import (
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark/ast"
)

// anchorIDs generates the anchors of the headings of a page as GitHub does, so that links
// in the documents work in both places.
type anchorIDs struct{ used map[string]bool }

// Generate implements parser.IDs.
func (a anchorIDs) Generate(heading []byte, _ ast.NodeKind) []byte {
	base := anchorOf(string(heading))
	id := base
	for n := 1; a.used[id]; n++ {
		id = base + "-" + strconv.Itoa(n)
	}
	a.used[id] = true
	return []byte(id)
}

// Put implements parser.IDs.
func (a anchorIDs) Put(id []byte) { a.used[string(id)] = true }

// anchorOf returns the anchor of a heading, which may contain markup.
func anchorOf(heading string) string {
	var out strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(withoutTargets(heading))) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			out.WriteRune(r)
		case r == ' ':
			out.WriteByte('-')
		}
	}
	return out.String()
}

// withoutTargets replaces links by their texts.
func withoutTargets(heading string) string {
	for {
		open := strings.Index(heading, "](")
		if open < 0 {
			return heading
		}
		end := strings.IndexByte(heading[open:], ')')
		if end < 0 {
			return heading
		}
		heading = heading[:open] + heading[open+end+1:]
	}
}
