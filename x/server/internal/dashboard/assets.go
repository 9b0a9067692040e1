package dashboard

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"sync"
	"time"
)

// assets contains the static files. htmx.min.js is htmx 2.0.11 as published; htmx.LICENSE is
// its licence.
//
//go:embed assets
var assets embed.FS

// assetNames lists the files that pages use.
var assetNames = []string{"sema.css", "sema.js", "htmx.min.js", "icon.svg"}

// An asset is a file whose URL contains a hash of its content: browsers cache it for ever,
// and load a new version as soon as there is one.
type asset struct {
	version string
	content []byte
}

var files = sync.OnceValue(func() map[string]asset {
	all := map[string]asset{}
	for _, name := range assetNames {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic(err) // the file is embedded
		}
		sum := sha256.Sum256(content)
		all[name] = asset{hex.EncodeToString(sum[:8]), content}
	}
	return all
})

func assetURL(name string) string { return "/ui/assets/" + files()[name].version + "/" + name }

// serveAsset serves static files without authentication: they contain no data.
func serveAsset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	file, ok := files()[name]
	if !ok || r.PathValue("version") != file.version {
		http.Error(w, "no such file; reload the page", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(file.content))
}
