// Package dashboard serves pages under /ui/ that show semaphores, their holders and
// waiters as they change, and let operators change them.
//
// It does not authenticate, authorise or audit: the [Service] that it is part of does.
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

// A Store is what is shown. It is read once for all viewers; what each of them may see is
// up to the [Viewer].
type Store interface {
	List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
	// Recent returns a semaphore as it was within the last second: what another stream has
	// just read is not read again.
	Recent(ctx context.Context, name string) (protocol.Snapshot, error)
	Ping(ctx context.Context) (time.Time, error) // the time on its clock
}

// A Viewer is a user of the dashboard. Methods that change something fail unless the
// viewer may, and are audited.
type Viewer interface {
	Name() string   // "" where no authentication is configured
	Prefix() string // of all names that the viewer may see, and of no others
	MayChange(semaphore string) bool

	// Resize fails if the configuration has another version by now.
	Resize(ctx context.Context, semaphore string, version uint64, capacity, ramp int64) error
	Drain(ctx context.Context, semaphore string) error
	Resume(ctx context.Context, semaphore string) error
	Revoke(ctx context.Context, semaphore string, lease protocol.Seq, atOnce bool, why string) error
	Delete(ctx context.Context, semaphore string) error
}

// A Service is what the dashboard is part of.
type Service interface {
	// Admit returns the viewer of a request, by a header or by [Token]. It fails for
	// viewers that may see nothing, and for requests of pages of other sites.
	Admit(r *http.Request) (Viewer, error)

	// Stream begins a response that goes on until ctx ends, unless there are too many.
	// send sends at once, and reports whether the client may still read.
	Stream(w http.ResponseWriter, r *http.Request) (ctx context.Context, send func(text string) bool, end func(), err error)

	// Explain returns an error as viewers read it, and logs it where that is due.
	Explain(r *http.Request, err error) Problem

	// Unavailable is called when the store ceases to respond.
	Unavailable(err error)
}

// A Problem is an error as viewers read it.
type Problem struct {
	Status        int
	Title, Detail string
	Header        http.Header
}

// Options configure a dashboard.
type Options struct {
	Store   Store
	Service Service
	Version string
	Login   bool // viewers have to log in with a token
}

// A Dashboard is an [http.Handler] for /ui/, and for no other path: links lead there.
type Dashboard struct {
	Options
	feeds  *feeds
	routes *http.ServeMux
}

// New returns a dashboard, which has to be closed.
func New(o Options) *Dashboard {
	d := &Dashboard{Options: o, feeds: newFeeds(o.Store, o.Service.Unavailable), routes: http.NewServeMux()}
	d.routes.HandleFunc("GET /ui/assets/{version}/{file}", serveAsset)
	d.routes.HandleFunc("GET /ui/{$}", d.admitted(d.overview))
	d.routes.HandleFunc("GET /ui/semaphore", d.admitted(d.semaphore))
	d.routes.HandleFunc("GET /ui/live", d.admitted(d.live))
	d.routes.HandleFunc("GET /ui/confirm", d.admitted(d.confirm))
	d.routes.HandleFunc("POST /ui/do", d.admitted(d.do))
	d.routes.HandleFunc("GET /ui/login", d.showLogin)
	d.routes.HandleFunc("POST /ui/login", d.login)
	d.routes.HandleFunc("POST /ui/logout", d.admitted(d.logout))
	d.routes.HandleFunc("/ui/", d.admitted(d.unrouted))
	return d
}

// unrouted fails requests that no route serves: there is no such page, or it has
// other methods.
func (d *Dashboard) unrouted(w http.ResponseWriter, r *http.Request, _ Viewer) error {
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		_, pattern := d.routes.Handler(&http.Request{Method: method, URL: r.URL, Host: r.Host})
		if strings.HasPrefix(pattern, method+" ") {
			methods = append(methods, method)
		}
		if strings.HasPrefix(pattern, "GET ") {
			methods = append(methods, http.MethodHead) // [http.ServeMux] serves it, too
		}
	}
	if len(methods) == 0 {
		return errNoPage
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	return errNoMethod
}

var (
	errNoPage   = errors.New("there is no such page")
	errNoMethod = errors.New("the page has other methods")
	errMayNot   = errors.New("this viewer may not change anything")
)

// EndStreams ends all streams, and rejects new ones. Pages show that they are not live any
// more, and reconnect.
func (d *Dashboard) EndStreams() { d.feeds.end() }

// Close ends streams, and returns when the store is not read any more.
func (d *Dashboard) Close() { d.feeds.close() }

// policy has pages use what this server sends, and nothing else; no page of another
// site shows them in a frame. Nothing is written into pages that is code or style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP implements [http.Handler].
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin") // with none, browsers would not say where a form comes from
	h.Set("Cache-Control", "no-store")
	if at, err := url.ParseRequestURI(r.RequestURI); err == nil && !strings.HasPrefix(at.Path, "/ui/") {
		// Links, forms and the cookie would lead elsewhere, and half of it would work.
		http.Error(w, "the dashboard has to be at /ui/: serve this handler at the root of a host, without http.StripPrefix", http.StatusNotFound)
		return
	}
	d.routes.ServeHTTP(w, r)
}

// admitted returns a handler for viewers that may see something.
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

// fail responds with an error: with the login page, if a token is missing.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, v Viewer, err error) {
	p := d.explain(r, err)
	for key, values := range p.Header {
		w.Header()[key] = values
	}
	switch {
	case p.Status == http.StatusUnauthorized && d.Login && byScript(r):
		w.Header().Set("HX-Refresh", "true") // and then the login page is shown
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

// reject is fail for a part of a page: in the dialog, or where results of actions are.
func (d *Dashboard) reject(w http.ResponseWriter, r *http.Request, p Problem) {
	if r.Method == http.MethodGet {
		d.render(w, p.Status, "rejection", p)
		return
	}
	d.render(w, p.Status, "result", actionResult{Title: p.Title, Text: p.Detail})
}

// explain returns an error as viewers can act on it.
func (d *Dashboard) explain(r *http.Request, err error) Problem {
	if errors.Is(err, errNoPage) {
		return Problem{Status: http.StatusNotFound, Title: "There is no such page", Detail: "The overview has all semaphores."}
	}
	if errors.Is(err, errNoMethod) {
		return Problem{Status: http.StatusMethodNotAllowed, Title: "Method not allowed", Detail: "The header Allow has the methods of this page."}
	}
	if errors.Is(err, errMayNot) {
		return Problem{Status: http.StatusForbidden, Title: "You may look, and not change anything", Detail: "Log in with a token that has the verb admin for this semaphore."}
	}
	p := d.Service.Explain(r, err)
	if p.Title != "" {
		p.Title = strings.ToUpper(p.Title[:1]) + p.Title[1:]
	}
	if errors.Is(err, fs.ErrNotExist) {
		p.Title, p.Detail = "There is no such semaphore", "It was deleted, or never created: the first acquire creates it."
	}
	return p
}

// byScript reports whether a request is for a part of a page.
func byScript(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// named returns the semaphore of a request, if the viewer may see it.
func (d *Dashboard) named(r *http.Request, v Viewer) (string, error) {
	name := r.FormValue("name")
	if err := fleet.CheckName(name); err != nil {
		return "", err
	}
	if !strings.HasPrefix(name, v.Prefix()) {
		return "", fs.ErrNotExist // whether it exists is not for others to know
	}
	return name, nil
}

// A border is around every page.
type border struct {
	Title   string
	Viewer  string // "": not known
	Login   bool
	Version string
	Live    string // the address of the stream; "" for a page that does not change
	AsOf    time.Time
}

func (d *Dashboard) border(v Viewer, title string) border {
	b := border{Title: title, Login: d.Login && v != nil, Version: d.Version, AsOf: time.Now()}
	if v != nil {
		b.Viewer = v.Name()
	}
	return b
}

//go:embed templates
var sources embed.FS

// templates are read when the first page is shown: programs that serve none need not
// wait for it.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"asset": assetURL, "confirm": questionURL, "count": count, "permits": permits, "age": age,
		"clock": func(t time.Time) string { return t.Format(time.TimeOnly) },
	}).ParseFS(sources, "templates/*.html"))
})

// render responds with a page, or with a part of one. It is sent when all of it is
// rendered.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	if err := templates().ExecuteTemplate(&page, name, data); err != nil {
		http.Error(w, "this page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // fails if the client has gone
}
