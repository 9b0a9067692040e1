package serve

import (
	"net/http"
	"sync"

	"github.com/sema-go/sema/docs"
	"github.com/sema-go/sema/site/pages"
	"github.com/sema-go/sema/x/server"
)

// site renders the documents on the first request: most servers never serve them.
var site = sync.OnceValues(func() (*pages.Site, error) {
	return pages.New(pages.Options{Docs: docs.Files, OpenAPI: server.OpenAPI(), Play: "../play/", Repository: docs.Repository})
})

// siteHandler serves the documents, as the site has them.
var siteHandler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	s, err := site()
	if err != nil {
		http.Error(w, "render the documents: "+err.Error(), http.StatusInternalServerError)
		return
	}
	s.ServeHTTP(w, r)
})
