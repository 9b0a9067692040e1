package dashboard

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// cookie is the name of the cookie that holds the token. Scripts cannot read it, and browsers
// do not send it for requests from other sites.
const cookie = "sema-token"

// longestToken is shorter than the cookie size that browsers support.
const longestToken = 2048

// Token returns the token of the cookie. It is valid only for the dashboard's pages.
func Token(r *http.Request) (token string, ok bool) {
	kept, err := r.Cookie(cookie)
	if err != nil {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(kept.Value)
	return string(raw), err == nil
}

func setCookie(w http.ResponseWriter, r *http.Request, token string, seconds int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookie, Value: base64.RawURLEncoding.EncodeToString([]byte(token)), Path: "/ui/", MaxAge: seconds,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: scheme(r) == "https",
	})
}

// scheme returns the scheme with which the browser reaches this server, or a proxy in front of
// it. A client that forges the header only restricts its own cookie.
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

// askForToken responds with the login page, and with the problem after a failed login.
func (d *Dashboard) askForToken(w http.ResponseWriter, r *http.Request, next string, p Problem) {
	if _, had := Token(r); had {
		setCookie(w, r, "", -1)
	}
	d.render(w, p.Status, "login", struct {
		border
		Next    string
		Problem Problem
		Failed  bool
	}{d.border(nil, "Log in"), localURL(next), p, r.Method == http.MethodPost})
}

// login stores a valid token in the cookie.
func (d *Dashboard) login(w http.ResponseWriter, r *http.Request) {
	token, next := strings.TrimSpace(r.PostFormValue("token")), localURL(r.PostFormValue("next"))
	attempt := r.Clone(r.Context())
	attempt.Header.Del("Authorization")
	attempt.Header.Del("Cookie")
	if token != "" && len(token) <= longestToken {
		attempt.Header.Set("Authorization", "Bearer "+token)
	}
	if _, err := d.Service.Admit(attempt); err != nil {
		p := d.explain(r, err)
		for key, values := range p.Header {
			w.Header()[key] = values
		}
		d.askForToken(w, r, next, p)
		return
	}
	setCookie(w, r, token, 0) // until the browser is closed
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func (d *Dashboard) logout(w http.ResponseWriter, r *http.Request, _ Viewer) error {
	setCookie(w, r, "", -1)
	http.Redirect(w, r, "/ui/login", http.StatusSeeOther)
	return nil
}

// pages are the paths to which the login may redirect.
var pages = []string{"/ui/", "/ui/semaphore", "/ui/activity", "/ui/clients", "/ui/store", "/ui/new"}

// localURL returns an address if it is a page of the dashboard, and the overview otherwise: a
// link to the login must not redirect to another site.
func localURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || !slices.Contains(pages, u.Path) {
		return "/ui/"
	}
	return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
}
