package etcdstore

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sema-go/sema/fleet/protocol"
)

// An entry is one write to a semaphore. It has what the write changed, or all of the state
// after it. A large entry is stored in parts.
type entry struct {
	By       string          `json:"by"`   // the attempt that wrote it
	Pace     protocol.Micros `json:"pace"` // see pace
	Parts    int             `json:"parts,omitempty"`
	Replies  []replyTo       `json:"replies,omitempty"`
	Watching ticketNameRow   `json:"watching,omitzero"` // the last ticket that was notified to watch the time
	Plain    *plainRow       `json:"semaphore,omitempty"`
	State    *stateRows      `json:"state,omitempty"`
	Changes  *changeRows     `json:"changes,omitempty"`
}

// The rows of images, with the names that are stored. The configuration is in the head.
type (
	configRow struct {
		Kind       kindRow         `json:"kind"`
		Capacity   int64           `json:"capacity"`
		Whole      int64           `json:"whole,omitempty"`
		Ramp       int64           `json:"ramp,omitempty"`
		MaxWaiters int64           `json:"max_waiters,omitempty"`
		TTL        protocol.Micros `json:"ttl"`
		Window     protocol.Micros `json:"window,omitempty"`
		Numbered   bool            `json:"numbered,omitempty"`
		Draining   bool            `json:"draining,omitempty"`
		Version    uint64          `json:"version"`
		Protocol   uint32          `json:"protocol"`
	}
	plainRow struct {
		Last        protocol.Micros  `json:"last"`
		Clock       protocol.Micros  `json:"clock"`
		LastSession protocol.Session `json:"last_session"`
		LastSeq     protocol.Seq     `json:"last_seq"`
		Renewals    uint64           `json:"renewals"`
	}
	sessionRow struct {
		ID         protocol.Session `json:"id"`
		Opened     *openedRow       `json:"opened,omitempty"` // nil: as in the state before
		Seq        uint64           `json:"seq"`
		Deadline   protocol.Micros  `json:"deadline"`
		Renewed    protocol.Micros  `json:"renewed"`
		Renewal    uint64           `json:"renewal"`
		LastResult uint64           `json:"last_result,omitempty"`
		Recalled   bool             `json:"recalled,omitempty"`
		Results    []resultRow      `json:"results,omitempty"`
	}
	openedRow struct { // never changes
		Instance  textRow `json:"instance"`
		Client    string  `json:"client,omitempty"`
		Key       keyRow  `json:"key"`
		Principal textRow `json:"principal,omitempty"`
	}
	resultRow struct {
		N      uint64              `json:"n"`
		Kind   protocol.ResultKind `json:"kind"`
		Ticket protocol.Ticket     `json:"ticket,omitempty"`
		Fence  *fenceRow           `json:"fence,omitempty"` // in replies only: it is computed for each
		Lease  protocol.Seq        `json:"lease,omitempty"`
		Weight int64               `json:"weight,omitempty"`
		Slots  protocol.Slots      `json:"slots,omitempty"`
		Note   textRow             `json:"note,omitempty"`
	}
	leaseRow struct {
		Seq     protocol.Seq     `json:"seq"`
		Session protocol.Session `json:"session"`
		Weight  int64            `json:"weight"`
		Pooled  bool             `json:"pooled,omitempty"`
		Revoked bool             `json:"revoked,omitempty"`
		Since   protocol.Micros  `json:"since"`
		Slots   protocol.Slots   `json:"slots,omitempty"`
		Details string           `json:"details,omitempty"`
	}
	ticketRow struct {
		Session protocol.Session `json:"session"`
		Ticket  protocol.Ticket  `json:"ticket"`
		Weight  int64            `json:"weight"`
		Least   int64            `json:"least"`
		Until   protocol.Micros  `json:"until,omitempty"`
		Pooled  bool             `json:"pooled,omitempty"`
		Since   protocol.Micros  `json:"since"`
		Details string           `json:"details,omitempty"`
	}
	ticketNameRow struct {
		Session protocol.Session `json:"session"`
		Ticket  protocol.Ticket  `json:"ticket"`
	}
	spentRow struct {
		Until   protocol.Micros  `json:"until"`
		Weight  int64            `json:"weight"`
		Seq     protocol.Seq     `json:"seq"`
		Session protocol.Session `json:"session"`
	}
	stateRows struct {
		Sessions []sessionRow `json:"sessions,omitempty"`
		Leases   []leaseRow   `json:"leases,omitempty"`
		Queue    []ticketRow  `json:"queue,omitempty"`
		Spent    []spentRow   `json:"spent,omitempty"`
	}
	changeRows struct {
		Sessions  []sessionRow       `json:"sessions,omitempty"`
		Ended     []protocol.Session `json:"ended,omitempty"`
		Leases    []leaseRow         `json:"leases,omitempty"`
		Dropped   []protocol.Seq     `json:"dropped,omitempty"`
		Queue     []ticketRow        `json:"queue,omitempty"`
		Left      []ticketNameRow    `json:"left,omitempty"`
		Spent     []spentRow         `json:"spent,omitempty"`      // new, or changed
		SpentFrom protocol.Seq       `json:"spent_from,omitempty"` // those with lower Seqs have passed
	}
)

func newConfigRow(c protocol.Config) configRow {
	return configRow{kindRow(c.Kind), c.Capacity, c.Whole, c.Ramp, c.MaxWaiters, c.TTL, c.Window, c.Numbered, c.Draining, c.Version, c.Protocol}
}

func (c configRow) config() protocol.Config {
	return protocol.Config{
		Kind: protocol.Kind(c.Kind), Capacity: c.Capacity, Whole: c.Whole, Ramp: c.Ramp, MaxWaiters: c.MaxWaiters, TTL: c.TTL, Window: c.Window,
		Numbered: c.Numbered, Draining: c.Draining, Version: c.Version, Protocol: c.Protocol,
	}
}

func newPlainRow(im protocol.Image) *plainRow {
	return &plainRow{im.Last, im.Clock, im.LastSession, im.LastSeq, im.Renewals}
}

// image returns the image without its lists. The configuration and the ramp are those of
// the head.
func (p *plainRow) image(h head) protocol.Image {
	return protocol.Image{
		Config: h.Config.config(), RampFrom: h.RampFrom, RampAt: h.RampAt, Last: p.Last, Clock: p.Clock,
		LastSession: p.LastSession, LastSeq: p.LastSeq, Renewals: p.Renewals,
	}
}

func newSessionRow(s protocol.SessionImage) sessionRow {
	return sessionRow{s.ID, nil, s.Seq, s.Deadline, s.Renewed, s.Renewal, s.LastResult, s.Recalled, each(s.Results, newResultRow)}
}

// newOpenedRow returns the row of a session with its client and owner.
func newOpenedRow(s protocol.SessionImage) sessionRow {
	row := newSessionRow(s)
	row.Opened = &openedRow{textRow(s.Client.Instance), s.Client.Encode(), keyRow(s.Owner.Key), textRow(s.Owner.Principal)}
	return row
}

// image returns the session. Its client and owner may be those of the state before.
func (s sessionRow) image(before map[protocol.Session]protocol.SessionImage) (im protocol.SessionImage, err error) {
	im = protocol.SessionImage{
		ID: s.ID, Seq: s.Seq, Deadline: s.Deadline, Renewed: s.Renewed, Renewal: s.Renewal, LastResult: s.LastResult, Recalled: s.Recalled,
		Results: each(s.Results, resultRow.result),
	}
	if s.Opened == nil {
		known, ok := before[s.ID]
		if !ok {
			return im, fmt.Errorf("session %d was never opened", s.ID)
		}
		im.Client, im.Owner = known.Client, known.Owner
		return im, nil
	}
	im.Owner = protocol.Owner{Key: protocol.Key(s.Opened.Key), Principal: string(s.Opened.Principal)}
	im.Client, err = protocol.DecodeClient(string(s.Opened.Instance), s.Opened.Client)
	return im, err
}

func newResultRow(r protocol.Result) resultRow {
	row := resultRow{r.N, r.Kind, r.Ticket, nil, r.Lease, r.Weight, r.Slots, textRow(r.Note)}
	if r.Fence.Seq != 0 {
		row.Fence = newFenceRow(r.Fence)
	}
	return row
}

func (r resultRow) result() protocol.Result {
	return protocol.Result{N: r.N, Kind: r.Kind, Ticket: r.Ticket, Fence: r.Fence.fence(), Lease: r.Lease, Weight: r.Weight, Slots: r.Slots, Note: string(r.Note)}
}

func (d *detailsText) leaseRow(l protocol.LeaseImage) leaseRow {
	return leaseRow{l.Seq, l.Session, l.Weight, l.Pooled, l.Revoked, l.Since, l.Slots, d.encode(l.Details)}
}

func (d *detailsText) lease(l leaseRow) protocol.LeaseImage {
	return protocol.LeaseImage{Seq: l.Seq, Session: l.Session, Weight: l.Weight, Pooled: l.Pooled, Revoked: l.Revoked, Since: l.Since, Slots: l.Slots, Details: d.decode(l.Details)}
}

func (d *detailsText) ticketRow(t protocol.TicketImage) ticketRow {
	return ticketRow{t.Session, t.Ticket, t.Weight, t.Least, t.Until, t.Pooled, t.Since, d.encode(t.Details)}
}

func (d *detailsText) ticket(t ticketRow) protocol.TicketImage {
	return protocol.TicketImage{Session: t.Session, Ticket: t.Ticket, Weight: t.Weight, Least: t.Least, Until: t.Until, Pooled: t.Pooled, Since: t.Since, Details: d.decode(t.Details)}
}

func newStateRows(im protocol.Image) *stateRows {
	var d detailsText
	return &stateRows{
		each(im.Sessions, newOpenedRow), each(im.Leases, d.leaseRow), each(im.Queue, d.ticketRow),
		each(im.Spent, func(s protocol.SpentImage) spentRow { return spentRow(s) }),
	}
}

// image returns all of the state.
func (s *stateRows) image(plain protocol.Image) (protocol.Image, error) {
	var d detailsText
	for _, row := range s.Sessions {
		session, err := row.image(nil)
		if err != nil {
			return plain, err
		}
		plain.Sessions = append(plain.Sessions, session)
	}
	plain.Leases, plain.Queue = each(s.Leases, d.lease), each(s.Queue, d.ticket)
	plain.Spent = each(s.Spent, func(s spentRow) protocol.SpentImage { return protocol.SpentImage(s) })
	return plain, d.err
}

// newChangeRows returns changes of rows. Sessions that the rows have already are without
// client and owner.
func newChangeRows(c *protocol.Changes, of *rows) *changeRows {
	var d detailsText
	changed := &changeRows{
		Ended: c.Ended, Leases: each(c.Leases, d.leaseRow), Dropped: c.Dropped, Queue: each(c.Queue, d.ticketRow),
		Left: each(c.Left, func(t protocol.TicketName) ticketNameRow { return ticketNameRow(t) }),
	}
	for _, s := range c.Sessions {
		row := newSessionRow
		if _, known := of.sessions[s.ID]; !known {
			row = newOpenedRow
		}
		changed.Sessions = append(changed.Sessions, row(s))
	}
	if c.Respent {
		changed.SpentFrom, changed.Spent = of.spentChanges(c)
	}
	return changed
}

// changes returns the changes of rows.
func (c *changeRows) changes(plain protocol.Image, of *rows) (*protocol.Changes, error) {
	var d detailsText
	changes := &protocol.Changes{
		Image: plain, Ended: c.Ended, Leases: each(c.Leases, d.lease), Dropped: c.Dropped, Queue: each(c.Queue, d.ticket),
		Left: each(c.Left, func(t ticketNameRow) protocol.TicketName { return protocol.TicketName(t) }),
	}
	for _, row := range c.Sessions {
		session, err := row.image(of.sessions)
		if err != nil {
			return nil, err
		}
		changes.Sessions = append(changes.Sessions, session)
	}
	if c.SpentFrom != 0 {
		changes.Respent, changes.Spent = true, of.spentAfter(c.SpentFrom, c.Spent)
	}
	return changes, d.err
}

func each[A, B any](all []A, convert func(A) B) []B {
	if len(all) == 0 {
		return nil
	}
	converted := make([]B, len(all))
	for i, one := range all {
		converted[i] = convert(one)
	}
	return converted
}

// A detailsText converts details to text and back, once per run of equal ones: most leases
// of a batch share their details.
type detailsText struct {
	details *protocol.Details
	text    string
	err     error // of the first text that could not be decoded
}

func (d *detailsText) encode(details *protocol.Details) string {
	if details != d.details && (details == nil || d.details == nil || *details != *d.details) {
		d.details, d.text = details, details.Encode()
	}
	return d.text
}

func (d *detailsText) decode(text string) *protocol.Details {
	if text != d.text {
		details, err := protocol.DecodeDetails(text)
		if err != nil && d.err == nil {
			d.err = fmt.Errorf("details: %w", err)
		}
		if d.details, d.text = nil, text; text != "" {
			d.details = &details
		}
	}
	return d.details
}

// A kindRow is a kind as text.
type kindRow protocol.Kind

var kinds = [...]string{protocol.Concurrency: "concurrency", protocol.Rate: "rate"}

func (k kindRow) MarshalText() ([]byte, error) { return []byte(kinds[k]), nil }

func (k *kindRow) UnmarshalText(text []byte) error {
	for i, kind := range kinds {
		if kind == string(text) {
			*k = kindRow(i)
			return nil
		}
	}
	return fmt.Errorf("kind %q is unknown", text)
}

// A keyRow is the key of a session, in hexadecimal digits.
type keyRow protocol.Key

func (k keyRow) MarshalText() ([]byte, error) { return []byte(protocol.Key(k).Hex()), nil }

func (k *keyRow) UnmarshalText(text []byte) error {
	key, err := protocol.ParseKey(string(text))
	*k = keyRow(key)
	return err
}

// A textRow is a text of any bytes. JSON has UTF-8 only: other texts are stored as a
// zero byte and base64.
type textRow string

func (t textRow) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(t)) && !strings.HasPrefix(string(t), "\x00") {
		return []byte(t), nil
	}
	return []byte("\x00" + base64.StdEncoding.EncodeToString([]byte(t))), nil
}

func (t *textRow) UnmarshalText(text []byte) error {
	encoded, other := strings.CutPrefix(string(text), "\x00")
	if !other {
		*t = textRow(text)
		return nil
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	*t = textRow(raw)
	return err
}
