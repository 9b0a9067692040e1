package server

import (
	"context"
	"net/http"
	"time"

	"github.com/sema-go/sema/fleet"
	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/x/server/internal/dashboard"
)

// mountDashboard serves people who have a browser.
func (s *Server) mountDashboard(mux *http.ServeMux) {
	s.people = dashboard.New(dashboard.Options{Engine: s.client, Service: reception{s}, Version: s.options.Version, Login: s.tokens.Load().required()})
	counted := s.counted.of(route{method: "UI", path: "/ui/"})
	mux.HandleFunc("/ui/", func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		seen := &observed{ResponseWriter: w}
		soon(seen, r)
		if err := s.receive(seen, r); err != nil {
			s.fail(seen, r, err)
		} else {
			s.people.ServeHTTP(seen, r)
		}
		counted(seen.status, start)
	})
}

// A reception is the server for its dashboard.
type reception struct{ *Server }

// Admit knows people by the cookie as well, which counts nowhere else.
func (s reception) Admit(r *http.Request) (dashboard.Viewer, error) {
	token, ok := bearer(r)
	if !ok {
		token, ok = dashboard.Token(r)
	}
	c, err := s.identifyBy(r, token, ok)
	if err != nil {
		return nil, err
	}
	if err := c.allow(Read, ""); err != nil {
		return nil, err
	}
	return viewer{guarded(s), c}, nil
}

func (s reception) Stream(w http.ResponseWriter, r *http.Request) (ctx context.Context, say func(string) bool, end func(), err error) {
	v, err := s.Admit(r)
	if err != nil {
		return nil, nil, nil, err
	}
	leave, err := s.stream(v.(viewer).in(r.Context()))
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := until(r.Context(), s.looking)
	out := &events{w: w, flush: http.NewResponseController(w)}
	return ctx, out.say, func() { cancel(); leave() }, nil
}

func (s reception) Explain(r *http.Request, err error) dashboard.Problem {
	p := s.diagnose(r, err)
	detail := p.Detail
	if p.Type == problemPath+kindStore.name {
		detail = err.Error() // operators look here for the cause
	}
	return dashboard.Problem{Status: p.Status, Title: p.Title, Detail: detail, Header: p.header}
}

func (s reception) Unanswered(err error) {
	s.log.Warn("the engine does not answer", "error", err)
}

// A viewer is somebody at the dashboard. It does what programs do, by the same way.
type viewer struct {
	guarded
	caller
}

func (v viewer) Name() string {
	if v.identity == everybody {
		return ""
	}
	return v.name
}

func (v viewer) Prefix() string                  { return v.prefix }
func (v viewer) MayChange(semaphore string) bool { return v.may(Admin, semaphore) }

func (v viewer) Resize(ctx context.Context, semaphore string, version uint64, capacity, ramp int64) error {
	return v.reconfigure(v.in(ctx), semaphore, conditions{version: version}, configuration{Capacity: &capacity, Ramp: &ramp})
}

func (v viewer) Drain(ctx context.Context, semaphore string) error {
	return v.pause(v.in(ctx), "drain", semaphore, true)
}

func (v viewer) Resume(ctx context.Context, semaphore string) error {
	return v.pause(v.in(ctx), "resume", semaphore, false)
}

func (v viewer) Revoke(ctx context.Context, semaphore string, lease protocol.Seq, atOnce bool, why string) error {
	return v.Administer(v.in(ctx), semaphore, fleet.Command{Revoke: &fleet.Revocation{Lease: lease, AtOnce: atOnce, By: v.name, Why: why}})
}

func (v viewer) Delete(ctx context.Context, semaphore string) error {
	return v.Administer(v.in(ctx), semaphore, fleet.Command{Delete: true})
}
