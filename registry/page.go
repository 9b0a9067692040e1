package registry

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/url"
	"strconv"
	"time"

	"github.com/sema-go/sema"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"seconds": func(s float64) string {
		return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
	},
	"time":  func(t *time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"style": func() template.CSS { return template.CSS(pageStyle) },
}).Parse(pageText))

// contentPolicy lets the page use its own style and nothing else: no script, no other
// host.
var contentPolicy = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
}()

// A page is what the template shows.
type page struct {
	overview
	query query
}

// Prefix returns the prefix of names that the page shows.
func (p page) Prefix() string { return p.query.prefix }

// NextLink returns the address of the next page.
func (p page) NextLink() string {
	return p.link(url.Values{"after": {p.Next}, "limit": {strconv.Itoa(p.query.rows)}})
}

// JSONLink returns the address of the page as JSON.
func (p page) JSONLink() string {
	return p.link(url.Values{"after": {p.query.after}, "format": {"json"}, "limit": {strconv.Itoa(p.query.rows)}})
}

func (p page) link(v url.Values) string {
	v.Set("name", p.query.prefix)
	return "?" + v.Encode()
}

// Unlimited reports that the limit has no bound, so that there is no bar to show.
func (v statsView) Unlimited() bool { return v.Capacity == sema.MaxCapacity }

// Changed reports that the value in force is not what the program asked for.
func (v limitView) Changed() bool { return v.Value != v.Initial }
