package dashboard

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
)

// cookie keeps the token, for pages alone: scripts do not see it, and no page of
// another site has it sent.
const cookie = "sema-token"

// longestToken is as much as browsers keep, with room to spare.
const longestToken = 2048

// Token is what a browser has kept. It counts for pages alone.
func Token(r *http.Request) (token string, ok bool) {
	kept, err := r.Cookie(cookie)
	if err != nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(kept.Value)
	return string(raw), err == nil
}

func keep(w http.ResponseWriter, r *http.Request, token string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: base64.RawURLEncoding.EncodeToString([]byte(token)), Path: "/ui/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: scheme(r) == "https",
	})
}

// scheme is how the browser speaks to this server, or to a proxy before it. Who lies
// about that has a cookie of its own be sent more seldom.
func scheme(r *http.Request) string {
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https"
	}
	return "http"
}

func (d *Dashboard) showLogin(w http.ResponseWriter, r *http.Request) {
	if _, err := d.Service.Admit(r); err == nil || !d.Login {
		http.Redirect(w, r, "/ui/", http.StatusSeeOther)
		return
	}
	d.askForToken(w, r, r.FormValue("next"), Problem{Status: http.StatusOK})
}

// askForToken says what was wrong, if anything was said.
func (d *Dashboard) askForToken(w http.ResponseWriter, r *http.Request, next string, p Problem) {
	if _, had := Token(r); had {
		keep(w, r, "", -1)
	}
	d.render(w, p.Status, "login", struct {
		border
		Next    string
		Problem Problem
		Said    bool
	}{d.border(nil, "Log in"), inside(next), p, r.Method == http.MethodPost})
}

// login keeps a token that is known.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	token, next := strings.TrimSpace(r.PostFormValue("token")), inside(r.PostFormValue("next"))
	said := r.Clone(r.Context())
	said.Header.Del("Authorization")
	said.Header.Del("Cookie")
	if token != "" && len(token) <= longestToken {
		said.Header.Set("Authorization", "Bearer "+token)
	}
	if _, err := d.Service.Admit(said); err != nil {
		p := d.explain(r, err)
		for key, values := range p.Header {
			w.Header()[key] = values
		}
		d.askForToken(w, r, next, p)
		return
	}
	keep(w, r, token, 0) // as long as the browser is open
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request, _ Viewer) error {
	keep(w, r, "", -1)
	http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
	return nil
}

// inside is an address if it is of a page here, or else the overview's: a link to the
// login must not lead elsewhere.
func inside(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path != "/ui/" && u.Path != "/ui/semaphore" {
		return "/ui/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}
