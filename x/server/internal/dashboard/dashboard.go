// Package dashboard serves pages under /ui/ that show semaphores with their holders and
// waiters, update while they change, and let operators change semaphores.
//
// The package does not authenticate, authorise or audit: its [Service] does.
package dashboard

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
)

// A Store provides the data that is shown. It is read once for all viewers. The [Viewer]
// decides what each of them may see.
type Store interface {
	List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
	// Recent returns a semaphore as of the last second. It may return what another stream
	// has just read.
	Recent(ctx context.Context, name string) (protocol.Snapshot, error)
	Ping(ctx context.Context) (time.Time, error) // returns the time on the store's clock
}

// A Viewer is a user of the dashboard. Methods that change something check whether the
// viewer may do so, and are audited.
type Viewer interface {
	Name() string   // "" if no authentication is configured
	Prefix() string // prefix of exactly the names that the viewer may see
	MayChange(semaphore string) bool

	Create(ctx context.Context, semaphore string, c Creation) error
	// Resize fails if the configuration no longer has the given version.
	Resize(ctx context.Context, semaphore string, version uint64, capacity, ramp int64) error
	Drain(ctx context.Context, semaphore string) error
	Resume(ctx context.Context, semaphore string) error
	Revoke(ctx context.Context, semaphore string, lease protocol.Seq, atOnce bool, why string) error
	Delete(ctx context.Context, semaphore string) error
}

// A Service is the server that the dashboard is part of.
type Service interface {
	// Admit returns the viewer of a request, authenticated by a header or by [Token]. It
	// fails for viewers that may see nothing, and for requests from pages of other sites.
	Admit(r *http.Request) (Viewer, error)

	// Stream starts a response that lasts until ctx ends. It fails if there are too many
	// streams. send writes and flushes, and reports false once writing has failed.
	Stream(w http.ResponseWriter, r *http.Request) (ctx context.Context, send func(text string) bool, end func(), err error)

	// Explain converts an error for viewers, and logs it if necessary.
	Explain(r *http.Request, err error) Problem

	// Unavailable logs that the store has stopped responding.
	Unavailable(err error)
}

// A Problem is an error as viewers see it.
type Problem struct {
	Status        int
	Title, Detail string
	Header        http.Header
}

// Options configures a dashboard.
type Options struct {
	Store    Store
	Service  Service
	Measures Measures // nil: no history, figures and advice
	Version  string
	Login    bool // viewers must log in with a token
	Demo     bool // pages state that the traffic is a demonstration
	Docs     bool // the server has documents at /docs/
}

// A Dashboard is an [http.Handler] for /ui/ only: its links contain that path.
type Dashboard struct {
	Options
	feeds  *feeds
	routes *http.ServeMux
}

// New returns a dashboard. The caller must close it.
func New(o Options) *Dashboard {
	d := &Dashboard{Options: o, feeds: newFeeds(o.Store, o.Measures, o.Service.Unavailable), routes: http.NewServeMux()}
	d.routes.HandleFunc("GET /ui/assets/{version}/{file}", serveAsset)
	d.routes.HandleFunc("GET /ui/{$}", d.admitted(d.overview))
	d.routes.HandleFunc("GET /ui/semaphore", d.admitted(d.semaphore))
	d.routes.HandleFunc("GET /ui/live", d.admitted(d.live))
	d.routes.HandleFunc("GET /ui/confirm", d.admitted(d.confirm))
	d.routes.HandleFunc("POST /ui/do", d.admitted(d.do))
	d.routes.HandleFunc("GET /ui/activity", d.admitted(d.activity))
	d.routes.HandleFunc("GET /ui/clients", d.admitted(d.clients))
	d.routes.HandleFunc("GET /ui/store", d.admitted(d.store))
	d.routes.HandleFunc("GET /ui/new", d.admitted(d.askNew))
	d.routes.HandleFunc("POST /ui/create", d.admitted(d.create))
	d.routes.HandleFunc("GET /ui/login", d.showLogin)
	d.routes.HandleFunc("POST /ui/login", d.login)
	d.routes.HandleFunc("POST /ui/logout", d.admitted(d.logout))
	d.routes.HandleFunc("/ui/", d.admitted(d.unrouted))
	return d
}

// unrouted responds to requests that match no route: the page does not exist, or has other
// methods.
func (d *Dashboard) unrouted(w http.ResponseWriter, r *http.Request, _ Viewer) error {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		_, pattern := d.routes.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
		if strings.HasPrefix(pattern, method+" ") {
			methods = append(methods, method)
		}
		if strings.HasPrefix(pattern, "GET ") {
			methods = append(methods, http.MethodHead) // [http.ServeMux] serves it as well
		}
	}
	if len(methods) == 0 {
		return errNoPage
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return errNoMethod
}

var (
	errNoPage   = errors.New("no such page")
	errNoMethod = errors.New("the page has other methods")
	errMayNot   = errors.New("this viewer may not change anything")
)

// EndStreams ends all streams and rejects new ones. Pages show that they are no longer live,
// and reconnect.
func (d *Dashboard) EndStreams() { d.feeds.end() }

// Close ends all streams and waits until the store is no longer read.
func (d *Dashboard) Close() { d.feeds.close() }

// policy restricts pages to resources of this server and forbids framing by other sites.
// Pages contain no inline code or styles.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // without it, browsers would omit the origin of a form
	h.Set("Cache-Control", "no-store")
	if at, err := url.ParseRequestURI(r.RequestURI); err == nil && !strings.HasPrefix(at.Path, "/ui/") {
		// Links, forms and the cookie would use wrong paths, so only parts would work.
		http.Error(w, "the dashboard must be at /ui/: serve this handler at the root of a host, without http.StripPrefix", http.StatusNotFound)
		return
	}
	d.routes.ServeHTTP(w, r)
}

// admitted wraps a handler: it authenticates the viewer and responds with errors.
func (d *Dashboard) admitted(serve func(http.ResponseWriter, *http.Request, Viewer) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := d.Service.Admit(r)
		if err == nil {
			err = serve(w, r, v)
		}
		if err != nil {
			d.fail(w, r, v, err)
		}
	}
}

// fail responds with an error, or with the login page if a token is missing.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, v Viewer, err error) {
	p := d.explain(r, err)
	for key, values := range p.Header {
		w.Header()[key] = values
	}
	switch {
	case p.Status == http.StatusUnauthorized && d.Login && byScript(r):
		w.Header().Set("HX-Refresh", "true") // the reload shows the login page
		w.WriteHeader(p.Status)
	case p.Status == http.StatusUnauthorized && d.Login:
		d.askForToken(w, r, r.URL.RequestURI(), p)
	case byScript(r):
		d.reject(w, r, p)
	default:
		d.render(w, p.Status, "problem", struct {
			border
			Problem Problem
		}{d.border(v, p.Title), p})
	}
}

// reject responds with an error for a part of a page: in the dialog, or in the place of
// action results.
func (d *Dashboard) reject(w http.ResponseWriter, r *http.Request, p Problem) {
	if r.Method == http.MethodGet {
		status := p.Status
		if status == http.StatusBadRequest {
			status = http.StatusOK // browsers log other statuses as errors, and the form is open still
		}
		d.render(w, status, "rejection", p)
		return
	}
	d.render(w, p.Status, "result", actionResult{Title: p.Title, Text: p.Detail})
}

// explain converts an error into a problem that viewers can act on.
func (d *Dashboard) explain(r *http.Request, err error) Problem {
	if errors.Is(err, errNoPage) {
		return Problem{Status: http.StatusNotFound, Title: "No such page", Detail: "The overview has all semaphores."}
	}
	if errors.Is(err, errNoMethod) {
		return Problem{Status: http.StatusMethodNotAllowed, Title: "Method not allowed", Detail: "The Allow header lists the methods of this page."}
	}
	if errors.Is(err, errMayNot) {
		return Problem{Status: http.StatusForbidden, Title: "You may view but not change this semaphore", Detail: "Log in with a token that has the verb admin for this semaphore."}
	}
	p := d.Service.Explain(r, err)
	if p.Title != "" {
		p.Title = strings.ToUpper(p.Title[:1]) + p.Title[1:]
	}
	if errors.Is(err, fs.ErrNotExist) {
		p.Title, p.Detail = "No such semaphore", "It was deleted, or was never created. The first acquire creates it."
	}
	return p
}

// byScript reports whether htmx requests a part of a page.
func byScript(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// named returns the name of a request's semaphore, if the viewer may see it.
func (d *Dashboard) named(r *http.Request, v Viewer) (string, error) {
	name := r.FormValue("name")
	if err := fleet.CheckName(name); err != nil {
		return "", err
	}
	if !strings.HasPrefix(name, v.Prefix()) {
		return "", fs.ErrNotExist // do not reveal whether it exists
	}
	return name, nil
}

// A border holds the data of the header and footer of every page.
type border struct {
	Title   string
	Viewer  string // "": unknown
	Login   bool
	Version string
	Live    string // URL of the stream; "": the page does not change
	AsOf    time.Time
	Place   string // of the page in the navigation; "": none
	known   bool   // the viewer has been admitted
	Demo    bool   // the server drives traffic of its own
	Docs    bool   // the server has documents at /docs/
}

// Zone returns the name of the time zone of the times on pages: that of the server.
func (b border) Zone() string {
	name, _ := b.AsOf.Zone()
	return name
}

// Offset returns the offset of that zone in seconds. The times that scripts show are in it as well.
func (b border) Offset() int {
	_, seconds := b.AsOf.Zone()
	return seconds
}

// A place is a page in the navigation.
type place struct {
	Name, URL string
	Current   bool
}

// Places returns the navigation, nil for viewers that are not known.
func (b border) Places() []place {
	if !b.known {
		return nil
	}
	return []place{
		{"Semaphores", "/ui/", b.Place == "semaphores"}, {"Activity", "/ui/activity", b.Place == "activity"},
		{"Clients", "/ui/clients", b.Place == "clients"}, {"Store", "/ui/store", b.Place == "store"},
	}
}

func (d *Dashboard) border(v Viewer, title string) border {
	b := border{Title: title, Login: d.Login && v != nil, Version: d.Version, AsOf: time.Now(), Demo: d.Demo, Docs: d.Docs}
	if v != nil {
		b.Viewer, b.known = v.Name(), true
	}
	return b
}

//go:embed templates
var sources embed.FS

// templates parses the templates on first use: programs that show no page need not wait for
// it.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"asset": assetURL, "filterWords": filterWords, "semaphoreURL": func(name string) string { return semaphore{Name: name}.URL() }, "brief": Brief, "perSecond": perSecond, "confirm": questionURL, "count": count, "count64": func(n int) string { return count(int64(n)) }, "permits": permits, "age": age,
		"clock": func(t time.Time) string { return t.Format(time.TimeOnly) },
	}).ParseFS(sources, "templates/*.html"))
})

// render responds with a page, or with a part of one. It sends nothing before everything is
// rendered.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	if err := templates().ExecuteTemplate(&page, name, data); err != nil {
		http.Error(w, "this page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // fails if the client has disconnected
}
