package server

import (
	"context"
	"net/http"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/dashboard"
)

// mountDashboard mounts the dashboard for browsers at /ui/.
func (s *Server) mountDashboard(mux *http.ServeMux) {
	api := dashboardAPI{s.service}
	s.ui = dashboard.New(dashboard.Options{Store: api, Service: api, Measures: api, Version: s.service.options.Version, Login: s.service.tokens.Load().required, Demo: s.service.options.Demo, Docs: s.service.options.Documents != nil})
	mux.Handle("/ui/", s.observe("UI /ui/", func(w *responseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			if err := s.receive(w, r); err != nil {
				s.service.fail(w, r, err)
				return
			}
		}
		s.ui.ServeHTTP(w, r)
	}))
}

// A dashboardAPI implements the interfaces that the dashboard uses.
type dashboardAPI struct{ service *service }

// List, Inspect, Recent and Ping read the store once for all viewers. The dashboard decides
// what each viewer may see, by [dashboard.Viewer].

func (a dashboardAPI) List(ctx context.Context, q protocol.ListQuery) ([]protocol.Summary, error) {
	return a.service.store.List(ctx, q)
}

func (a dashboardAPI) Inspect(ctx context.Context, name string) (protocol.Snapshot, error) {
	return a.service.snapshot(ctx, name)
}

func (a dashboardAPI) Recent(ctx context.Context, name string) (protocol.Snapshot, error) {
	return a.service.watches.recent(ctx, name)
}

func (a dashboardAPI) Ping(ctx context.Context) (time.Time, error) { return a.service.store.Ping(ctx) }

// Admit implements [dashboard.Service]. If tokens are required, it also accepts the token of
// the cookie, which no other request accepts.
func (a dashboardAPI) Admit(r *http.Request) (dashboard.Viewer, error) {
	token, ok := bearer(r)
	if !ok && a.service.tokens.Load().required {
		token, ok = dashboard.Token(r)
	}
	c, err := a.service.identify(r, token, ok)
	if err != nil {
		return nil, err
	}
	if err := c.allow(Read, ""); err != nil {
		return nil, err
	}
	return viewer{a.service, c}, nil
}

// Stream implements [dashboard.Service].
func (a dashboardAPI) Stream(w http.ResponseWriter, r *http.Request) (ctx context.Context, send func(string) bool, end func(), err error) {
	v, err := a.Admit(r)
	if err != nil {
		return nil, nil, nil, err
	}
	s, one := a.service, v.(viewer).account
	if err := s.enter(one, streams, &s.streams); err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := withLife(r.Context(), s.watching)
	out := stream{w, http.NewResponseController(w)}
	return ctx, func(text string) bool { return out.send(text) }, func() { cancel(); s.leave(one, streams, &s.streams) }, nil
}

// Explain implements [dashboard.Service].
func (a dashboardAPI) Explain(r *http.Request, err error) dashboard.Problem {
	p := a.service.diagnose(r, err)
	detail := p.Detail
	if p.Type == problemPath+kindStore.name {
		detail = err.Error() // operators need the cause here
	}
	return dashboard.Problem{Status: p.Status, Title: p.Title, Detail: detail, Header: p.header}
}

// Unavailable implements [dashboard.Service].
func (a dashboardAPI) Unavailable(err error) {
	a.service.log.Warn("the store does not respond", "error", err)
}

// A viewer is a user of the dashboard. It changes semaphores through the service.
type viewer struct {
	service *service
	*call
}

func (v viewer) Name() string {
	if v.identity == anonymousIdentity {
		return ""
	}
	return v.name
}

func (v viewer) Prefix() string                  { return v.prefix }
func (v viewer) MayChange(semaphore string) bool { return v.may(Admin, semaphore) }

// Create fails if the semaphore exists.
func (v viewer) Create(ctx context.Context, semaphore string, c dashboard.Creation) error {
	wanted := settings{Capacity: &c.Capacity}
	if c.TTL != 0 {
		wanted.TTL = new(duration(c.TTL))
	}
	if c.Window != 0 {
		wanted.Window = new(duration(c.Window))
	}
	if c.MaxWaiters != nil {
		bound, ok := newMaxWaiters(*c.MaxWaiters)
		if !ok {
			return invalid("max_waiters: %d: want %s", *c.MaxWaiters, wantWaiters)
		}
		wanted.MaxWaiters = bound
	}
	_, _, err := v.service.configure(v.withCall(ctx), semaphore, conditions{noneMatch: &entityTags{any: true}}, wanted)
	return err
}

func (v viewer) Resize(ctx context.Context, semaphore string, version uint64, capacity, ramp int64) error {
	_, _, err := v.service.configure(v.withCall(ctx), semaphore, conditions{version: version}, settings{Capacity: &capacity, Ramp: &ramp})
	return err
}

func (v viewer) Drain(ctx context.Context, semaphore string) error {
	_, err := v.service.drain(v.withCall(ctx), semaphore, conditions{}, 0)
	return err
}

func (v viewer) Resume(ctx context.Context, semaphore string) error {
	_, err := v.service.resume(v.withCall(ctx), semaphore, conditions{})
	return err
}

func (v viewer) Revoke(ctx context.Context, semaphore string, lease protocol.Seq, atOnce bool, why string) error {
	return v.service.revoke(v.withCall(ctx), semaphore, fleet.Revocation{Lease: lease, AtOnce: atOnce, Why: why})
}

func (v viewer) Delete(ctx context.Context, semaphore string) error {
	return v.service.delete(v.withCall(ctx), semaphore, conditions{})
}
