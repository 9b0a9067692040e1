// Package axe contains axe-core 4.10.3, which checks pages for accessibility, for tests in a real
// browser. It is as published, compressed; axe.LICENSE is its licence (MPL 2.0), and axe.3RD-PARTY.LICENSE those of what it contains.
package axe

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"
)

//go:embed axe.min.js.gz
var compressed []byte

// Script returns the program. It defines the object axe in the page that evaluates it.
func Script() string { return script() }

var script = sync.OnceValue(func() string {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		panic(err) // the file is embedded
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return string(text)
})

// Violations is an expression that runs the checks in a page. Its value is a promise of a text
// with a line for each violation, empty if there is none.
const Violations = `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + " (" + v.impact + "): " + n.target.join(" ") + " " + n.html.slice(0, 120) + " " + (n.failureSummary || "").replace(/\s+/g, " "))).join("\n"))`
