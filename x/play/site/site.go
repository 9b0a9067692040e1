// Package site contains the page of the playground, which works as static files under any
// path, and serves it.
package site

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:embed files
var files embed.FS

// built contains what x/play/build has written: the program and wasm_exec.js, or nothing.
//
//go:embed built
var built embed.FS

// Program is the name of the compiled and compressed program.
const Program = "play.wasm.gz"

// Page returns the files of the page, without those that are built.
func Page() fs.FS { return sub(files, "files") }

// Built returns the files that were built before this program was. There are none in a
// program that was built without `make play`.
func Built() fs.FS { return sub(built, "built") }

func sub(all fs.FS, dir string) fs.FS {
	one, err := fs.Sub(all, dir)
	if err != nil {
		panic(err) // the name is valid
	}
	return one
}

// policy allows the program to be compiled, and otherwise what the dashboard allows: nothing
// but the files of this directory.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Handler serves the page and the built files at any path that ends with a slash: wrap it in
// [http.StripPrefix]. If nothing was built, the page states so.
func Handler(built fs.FS) http.Handler {
	served := map[string]file{}
	for _, dir := range []fs.FS{Page(), built} {
		names, err := fs.Glob(dir, "*")
		if err != nil {
			panic(err) // the pattern is valid
		}
		for _, name := range names {
			content, err := fs.ReadFile(dir, name)
			if err != nil || contentType(name) == "" {
				continue // a directory, or about.txt
			}
			sum := sha256.Sum256(content)
			served[name] = file{content, `"` + hex.EncodeToString(sum[:8]) + `"`}
		}
	}
	return handler(served)
}

// A file is served with a tag of its content, so that browsers revalidate it and load only
// what has changed.
type file struct {
	content []byte
	tag     string
}

type handler map[string]file

// ServeHTTP implements [http.Handler].
func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("X-Frame-Options", "DENY")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the playground is read with GET", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" {
		name = "index.html"
	}
	at, ok := h[name]
	if !ok {
		http.Error(w, "no such file of the playground", http.StatusNotFound)
		return
	}
	header.Set("Content-Type", contentType(name))
	header.Set("ETag", at.tag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(at.content))
}

// contentType returns the type of a file that the page loads, "" of others. The program is
// sent as it is, and decompressed by the page: so any server of static files will do.
func contentType(name string) string {
	return map[string]string{
		".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml", ".gz": "application/gzip",
	}[path.Ext(name)]
}
