// Package dashboard is the service for people: pages under /ui/ that show who holds
// permits and who waits, as it changes, and let those who may do something about it.
//
// It knows nothing of tokens and logs. Who looks, what they may see and what is
// noted of what they do is the business of the [Service] that it is part of. Programs
// have no use for it: what they want is in the API.
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

// An Engine is what is looked at, once for all who look at a time. What each of them
// sees of it is up to the [Viewer].
type Engine interface {
	List(ctx context.Context, prefix string) ([]string, error)
	Inspect(ctx context.Context, name string) (protocol.Snapshot, error)
	Ping(ctx context.Context) (time.Time, error) // what its clock shows
}

// A Viewer is who looks. What changes something fails unless this one may, and is
// noted, as it is whichever way it comes.
type Viewer interface {
	Name() string   // "" where nobody is asked
	Prefix() string // of all that it may see, and of nothing else
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
	// Admit is who makes a request, by a header or by [Token]. It fails for who may
	// see nothing, and for what a page of another site's has a browser do.
	Admit(r *http.Request) (Viewer, error)

	// Stream has an answer go on until ctx ends, unless there are too many. What is
	// said is sent at once; say reports whether somebody may still listen.
	Stream(w http.ResponseWriter, r *http.Request) (ctx context.Context, say func(text string) bool, end func(), err error)

	// Explain is an error as it is told, and is told of it.
	Explain(r *http.Request, err error) Problem

	// Unanswered is told when the engine ceases to answer.
	Unanswered(err error)
}

// A Problem is an error for people.
type Problem struct {
	Status        int
	Title, Detail string
	Header        http.Header
}

// Options are what a dashboard is made of.
type Options struct {
	Engine  Engine
	Service Service
	Version string
	Login   bool // people have to say a token
}

// A Dashboard is an [http.Handler] for /ui/, and for no other place: all that pages
// lead to is there.
type Dashboard struct {
	Options
	watch  *watch
	routes *http.ServeMux
}

// New makes a dashboard, which has to be closed.
func New(o Options) *Dashboard {
	d := &Dashboard{Options: o, watch: newWatch(o.Engine, o.Service.Unanswered), routes: http.NewServeMux()}
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

// EndStreams ends all streams, and refuses new ones. Pages say that they are not
// live any more, and try again.
func (d *Dashboard) EndStreams() { d.watch.end() }

// Close ends streams, and returns when the engine is not looked at any more.
func (d *Dashboard) Close() { d.watch.close() }

// policy has pages use what this server sends, and nothing else; no page of another
// site shows them in a frame. Nothing is written into pages that is code or style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP is for [http.Handler].
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

// admitted is a handler for those who may look.
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

// fail answers with an error: by a place to say a token, if that is what is missing.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, v Viewer, err error) {
	p := d.explain(r, err)
	for key, values := range p.Header {
		w.Header()[key] = values
	}
	switch {
	case p.Status == http.StatusUnauthorized && d.Login && byScript(r):
		w.Header().Set("HX-Refresh", "true") // and then the place is shown
		w.WriteHeader(p.Status)
	case p.Status == http.StatusUnauthorized && d.Login:
		d.askForToken(w, r, r.URL.RequestURI(), p)
	case byScript(r):
		d.refuse(w, r, p)
	default:
		d.render(w, p.Status, "problem", struct {
			border
			Problem Problem
		}{d.border(v, p.Title), p})
	}
}

// refuse is fail for a part of a page: in the dialog in which something was to be
// asked, or where it is told what became of it.
func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, p Problem) {
	if r.Method == http.MethodGet {
		d.render(w, p.Status, "refusal", p)
		return
	}
	d.render(w, p.Status, "outcome", outcome{Title: p.Title, Text: p.Detail})
}

// explain is an error as people can act on it.
func (d *Dashboard) explain(r *http.Request, err error) Problem {
	if errors.Is(err, errNoPage) {
		return Problem{Status: http.StatusNotFound, Title: "There is no such page", Detail: "The overview has all that there is."}
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
		p.Title, p.Detail = "There is no such semaphore", "It was deleted, or never made: the first acquire makes it."
	}
	return p
}

// byScript is about requests that want a part of a page.
func byScript(r *http.Request) bool { return r.Header.Get("HX-Request") == "true" }

// named is the semaphore that a request is about, if this one may see it.
func (d *Dashboard) named(r *http.Request, v Viewer) (string, error) {
	name := r.FormValue("name")
	if err := fleet.CheckName(name); err != nil {
		return "", err
	}
	if !strings.HasPrefix(name, v.Prefix()) {
		return "", fs.ErrNotExist // also whether there is one is not for others to know
	}
	return name, nil
}

// A border is what is around every page.
type border struct {
	Title   string
	Viewer  string // "" if there is nothing to tell
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

// render answers with a page, or with a part of one. It is written when all of it is
// known to be well.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, data any) {
	var page bytes.Buffer
	if err := templates().ExecuteTemplate(&page, name, data); err != nil {
		http.Error(w, "this page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = page.WriteTo(w) // or the client has gone
}
