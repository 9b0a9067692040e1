package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// A command is an action as a line for a shell.
type command struct{ Name, Line string }

// commandsOf returns an action as commands. They contain no token: the shell has it.
func commandsOf(r *http.Request, want action, token bool) []command {
	path := "/v1/semaphores/" + url.PathEscape(want.name)
	curl := func(method, path, body string) string {
		line := "curl -X " + method
		if token {
			line += ` -H "Authorization: Bearer $SEMA_TOKEN"`
		}
		if body != "" {
			line += " -d " + quoted(body)
		}
		at := safeHost(r) + path // curl's default is http
		if scheme(r) == "https" {
			at = "https://" + at
		}
		return line + " " + quoted(at)
	}
	// cli returns a command with its flags, and with the arguments after the name.
	cli := func(verb, flags string, args ...string) string {
		store := "sema://"
		if scheme(r) == "https" {
			store = "semas://"
		}
		flags += " --store " + quoted(store+safeHost(r))
		operands := strings.Join(append([]string{quoted(want.name)}, args...), " ")
		if strings.HasPrefix(want.name, "-") {
			return "sema " + verb + flags + " -- " + operands // the name is no flag
		}
		return "sema " + verb + " " + operands + flags
	}
	switch want.verb {
	case "drain": // without waiting for held permits, as the button
		return []command{{"CLI", cli("drain", " --wait 0")}, {"curl", curl("POST", path+"/drain", "")}}
	case "resume":
		return []command{{"CLI", cli("resume", "")}, {"curl", curl("POST", path+"/resume", "")}}
	case "delete":
		return []command{{"CLI", cli("rm", "")}, {"curl", curl("DELETE", path, "")}}
	case "resize":
		return []command{
			{"CLI", cli("set", fmt.Sprintf(" --capacity %d --ramp %d", want.capacity, want.ramp))},
			{"curl", curl("PUT", path, fmt.Sprintf(`{"capacity":%d,"ramp":%d}`, want.capacity, want.ramp))},
		}
	case "revoke":
		lease := fmt.Sprint(want.lease)
		return []command{{"CLI", cli("revoke", "", lease)}, {"curl", curl("POST", path+"/leases/"+lease+"/revoke", "")}}
	case "revoke-all":
		var leases strings.Builder
		for _, lease := range want.leases {
			fmt.Fprintf(&leases, " %d", lease)
		}
		each := func(line string) string { return "for lease in" + leases.String() + "; do " + line + "; done" }
		return []command{
			{"CLI", each(cli("revoke", "", "$lease"))},
			{"curl", each(curl("POST", path+"/leases/", "") + `"$lease"/revoke`)},
		}
	}
	return nil
}

// quoted quotes a text for a shell, if necessary.
func quoted(text string) string {
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:/@%", c)
	}) && text[0] != '-' {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// safeHost returns the host of a request, or localhost if a shell might interpret it.
func safeHost(r *http.Request) string {
	if strings.ContainsFunc(r.Host, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]", c)
	}) {
		return "localhost"
	}
	return r.Host
}
