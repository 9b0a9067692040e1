package serve

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestDocuments_AreRendered(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/":                      "Getting started",
		"/cli.html":              "sema run",
		"/http-api.html":         "/v1/semaphores/{name}/leases",
		"/learn/":                `href="../../play/"`,
		"/search.json":           "glossary",
		"/scale/fairness.svg":    "<svg",
		"/how-to/ci-builds.html": `href="../assets/site.css"`,
	} {
		w := httptest.NewRecorder()
		siteHandler.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: status %d, no %q", path, w.Code, want)
		}
	}
}
