package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// mostRevoked bounds the leases that one request revokes.
const mostRevoked = 200

// leasesOf parses the leases that were selected in the list, or the list of a confirmed form.
func leasesOf(values []string) (all []protocol.Seq, err error) {
	for _, text := range strings.FieldsFunc(strings.Join(values, ","), func(c rune) bool { return c == ',' }) {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, inputError{"A number of this form is not valid: go back and try again."}
		}
		if lease := protocol.Seq(n); !slices.Contains(all, lease) {
			all = append(all, lease)
		}
		if len(all) > mostRevoked {
			return nil, inputError{fmt.Sprintf("Select at most %d leases.", mostRevoked)}
		}
	}
	if len(all) == 0 {
		return nil, inputError{"Select the holders to revoke first, with the boxes of the list."}
	}
	return all, nil
}

// A leaseGroup is the leases of one client, or with one label.
type leaseGroup struct{ by, name string }

// revokeGroupURL returns the URL of the question whether to revoke the leases of a group.
func (s semaphore) revokeGroupURL(by, group string) string {
	return "/ui/confirm?" + url.Values{"do": {"revoke-group"}, "name": {s.Name}, "by": {by}, "group": {group}}.Encode()
}

// resolved replaces the action on a group by one on its leases, so that the confirmed form names
// exactly what was shown. Of a large group, it selects the oldest leases.
func (want action) resolved(s semaphore) (action, error) {
	if want.verb != "revoke-group" {
		return want, nil
	}
	i := slices.IndexFunc(groupings[:], func(g grouping) bool { return g.By == want.group.by })
	if i < 0 {
		return want, inputError{fmt.Sprintf("Leases are not grouped by %q.", want.group.by)}
	}
	sessions := s.sessions()
	want.verb = "revoke-all"
	for _, l := range s.Leases {
		if groupings[i].of(sessions[l.Session].Client, l) == want.group.name && len(want.leases) < mostRevoked {
			want.leases = append(want.leases, l.Seq)
		}
	}
	if len(want.leases) == 0 {
		return want, errNoLease
	}
	return want, nil
}

// askRevokeAll asks whether to notify several holders. It offers no revocation at once: that needs
// a decision for each holder.
func askRevokeAll(want action, s semaphore) (question, error) {
	var found []protocol.LeaseInfo
	var weight int64
	var leases []string
	for _, l := range s.Leases {
		if slices.Contains(want.leases, l.Seq) {
			found, weight = append(found, l), weight+l.Weight
			leases = append(leases, strconv.FormatUint(uint64(l.Seq), 10))
		}
	}
	if len(found) == 0 {
		return question{}, errNoLease
	}
	s.Leases, s.Queue = found, nil
	holders := s.holders(s.sessions(), true)
	then := []string{fmt.Sprintf("All %d are notified. The permits of each are free when it has confirmed, or has sent no heartbeat for %s.", len(found), s.TTL())}
	if len(found) == 1 {
		then[0] = fmt.Sprintf("The holder is notified. Its permits are free when it has confirmed, or has sent no heartbeat for %s.", s.TTL())
	}
	const shown = 5
	for _, h := range holders[:min(shown, len(holders))] {
		then = append(then, fmt.Sprintf("%s for %s: %s.", permits(h.Weight), age(h.Held), describeHolder(h)))
	}
	if n := len(holders) - shown; n > 0 {
		then = append(then, fmt.Sprintf("And %d more.", n))
	}
	return question{
		Ask: fmt.Sprintf("Revoke %s of %q, %s?", permits(weight), s.Name, holdersText(len(found))), Button: fmt.Sprintf("Notify %s", holdersText(len(found))),
		Why: true, Danger: true, Then: then, Fields: map[string]string{"leases": strings.Join(leases, ",")},
	}, nil
}

// revokeAll notifies the holders of leases. Leases that have ended in the meantime are no error.
func (want action) revokeAll(ctx context.Context, v Viewer) error {
	for _, lease := range want.leases {
		if err := v.Revoke(ctx, want.name, lease, false, want.why); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
