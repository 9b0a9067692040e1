package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// policy allows what pages need: their own style, script, images and index.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// imagePolicy is that of charts, which select their colours by the theme.
const imagePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

// ServeHTTP serves the site. The path of the request is relative to the site: mount it with
// [http.StripPrefix].
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/")
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	f, ok := s.files[name]
	if !ok {
		http.Error(w, "no such page; the index is at the top of the site", http.StatusNotFound)
		return
	}
	sum := sha256.Sum256(f.content)
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Content-Security-Policy", policy)
	if f.kind == "image/svg+xml" {
		h.Set("Content-Security-Policy", imagePolicy)
	}
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Etag", `"`+hex.EncodeToString(sum[:8])+`"`)
	h.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}
