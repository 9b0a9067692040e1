package sqlitestore

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// SQLite's integers are signed. Unsigned numbers of the protocol are stored as the
// integers with the same bits.

// write adds the changes of a semaphore to the transaction.
func (f *file) write(k *entry) error {
	if k.rows.stale {
		if err := f.removeRows(k.rows.id); err != nil {
			return err
		}
	}
	if k.state == nil {
		return f.insertTombstone(k)
	}
	k.rows.stale = false
	c := &k.changes
	if err := f.writeSemaphore(k, c.Image); err != nil {
		return err
	}
	id := k.rows.id
	if err := f.writeSessions(id, c); err != nil {
		return err
	}
	if err := f.writeLeases(id, c); err != nil {
		return err
	}
	if err := f.writeQueue(k, c); err != nil {
		return err
	}
	if c.Respent {
		return f.writeSpending(k, c.Spent)
	}
	return nil
}

// removeRows removes all rows of a semaphore but its own.
func (f *file) removeRows(id int64) error {
	for _, purge := range f.purge {
		if _, err := purge.exec(values{}.with(id)); err != nil {
			return err
		}
	}
	return nil
}

// insertTombstone removes a semaphore and stores the last Seq of its name.
func (f *file) insertTombstone(k *entry) error {
	if _, err := f.deleteSemaphore.exec(values{}.with(k.rows.id)); err != nil {
		return err
	}
	_, err := f.statements.insertTombstone.exec(values{}.with(k.name, int64(k.tombstone)))
	return err
}

// writeSemaphore writes the semaphore's own row, with totals of the other tables.
func (f *file) writeSemaphore(k *entry, im protocol.Image) error {
	config, err := json.Marshal(im.Config)
	if err != nil {
		return err
	}
	load := k.state.Summary(k.name)
	plain := make(values, 0, 13).with(string(config), im.RampFrom, int64(im.RampAt), int64(im.Last), int64(im.Clock),
		int64(im.LastSession), int64(im.LastSeq), int64(im.Renewals), load.InUse, load.Leases, load.Waiting, load.Sessions)
	if k.rows.id != 0 {
		_, err = f.updateSemaphore.exec(plain.with(k.rows.id))
		return err
	}
	created, err := f.insertSemaphore.exec(plain.with(k.name))
	if err != nil {
		return err
	}
	if k.rows.id, err = created.LastInsertId(); err != nil {
		return err
	}
	if _, err = f.deleteTombstone.exec(values{}.with(k.name)); err != nil {
		return err
	}
	return f.removeRows(k.rows.id) // rows of a semaphore that an operator deleted
}

func (f *file) writeSessions(id int64, c *protocol.Changes) error {
	v := f.values.begin(max(14*len(c.Sessions), 2*len(c.Ended)))
	defer f.values.end()
	var client clientText
	for _, s := range c.Sessions {
		results, err := encodeResults(s.Results)
		if err != nil {
			return err
		}
		v = v.with(id, s.Client.Instance, client.encode(s.Client), s.Owner.Principal, s.Recalled, s.Extended, int64(s.ID), s.Owner.Key.Hex(), int64(s.Seq), int64(s.Deadline),
			int64(s.Renewed), int64(s.Renewal), int64(s.LastResult), results)
	}
	if err := f.putSessions.exec(v); err != nil {
		return err
	}
	v = v[:0]
	for _, ended := range c.Ended {
		v = v.with(id, int64(ended))
	}
	return f.endSessions.exec(v)
}

// A storedResult is a result without its fence, which is computed for each reply.
type storedResult struct {
	N      uint64
	Kind   protocol.ResultKind
	Ticket protocol.Ticket
	Lease  protocol.Seq
	Weight int64
	Slots  protocol.Slots `json:",omitempty"`
	Note   string         `json:",omitempty"`
}

// encodeResults returns results as JSON.
func encodeResults(results []protocol.Result) (string, error) {
	if len(results) == 0 {
		return "[]", nil // most sessions have acknowledged all
	}
	all := make([]storedResult, len(results))
	for i, r := range results {
		all[i] = storedResult{r.N, r.Kind, r.Ticket, r.Lease, r.Weight, r.Slots, r.Note}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

func (r storedResult) result() protocol.Result {
	return protocol.Result{N: r.N, Kind: r.Kind, Ticket: r.Ticket, Lease: r.Lease, Weight: r.Weight, Slots: r.Slots, Note: r.Note}
}

func (f *file) writeLeases(id int64, c *protocol.Changes) error {
	v := f.values.begin(max(2*len(c.Dropped), 9*len(c.Leases)))
	defer f.values.end()
	for _, seq := range c.Dropped {
		v = v.with(id, int64(seq))
	}
	if err := f.dropLeases.exec(v); err != nil {
		return err
	}
	v = v[:0]
	var details detailsText
	for _, l := range c.Leases {
		v = v.with(id, l.Weight, l.Pooled, l.Revoked, string(l.Slots), details.encode(l.Details), int64(l.Seq), int64(l.Session), int64(l.Since))
	}
	return f.putLeases.exec(v)
}

// writeQueue removes the tickets that left the queue before it adds new ones: a session
// may have reused the same ticket.
func (f *file) writeQueue(k *entry, c *protocol.Changes) error {
	v := make(values, 0, max(3*len(c.Left), 10*len(c.Queue)))
	for _, t := range c.Left {
		v = v.with(k.rows.id, int64(t.Session), int64(t.Ticket))
	}
	if err := f.dropTickets.exec(v); err != nil {
		return err
	}
	v = v[:0]
	var details detailsText
	for _, t := range c.Queue {
		k.rows.places++
		v = v.with(k.rows.id, int64(t.Session), int64(t.Ticket), k.rows.places, t.Weight, t.Least, int64(t.Until), t.Pooled, int64(t.Since), details.encode(t.Details))
	}
	return f.putTickets.exec(v)
}

// writeSpending writes rows that are new or changed (a grant was settled, a clock
// stepped back). It removes rows whose window has passed, which have the lowest Seqs.
func (f *file) writeSpending(k *entry, spent []protocol.SpentImage) error {
	left := k.rows.spent // rows in the file whose window has not passed
	if len(spent) == 0 {
		left = nil
		if _, err := f.purgeSpending.exec(values{}.with(k.rows.id)); err != nil {
			return err
		}
	} else if passed := indexOf(left, spent[0].Seq); passed > 0 {
		left = left[passed:]
		if _, err := f.dropSpending.exec(values{}.with(k.rows.id, int64(spent[0].Seq))); err != nil {
			return err
		}
	}
	k.rows.spent = spent
	v := make(values, 0, 5*(len(spent)-len(left)))
	for i, s := range spent {
		if i >= len(left) || left[i] != s {
			v = v.with(k.rows.id, int64(s.Seq), int64(s.Session), int64(s.Until), s.Weight)
		}
	}
	return f.putSpending.exec(v)
}

// indexOf returns the index of the entry of a grant, or the index where it would be
// inserted.
func indexOf(spent []protocol.SpentImage, seq protocol.Seq) int {
	at, _ := slices.BinarySearchFunc(spent, seq, func(s protocol.SpentImage, seq protocol.Seq) int { return cmp.Compare(s.Seq, seq) })
	return at
}

// A clientText converts clients to text, and caches the last conversion: a service opens all its
// sessions as one client.
type clientText struct {
	client protocol.Client
	text   string
}

func (t *clientText) encode(client protocol.Client) string {
	if client != t.client {
		t.client, t.text = client, client.Encode()
	}
	return t.text
}

// A detailsText converts details to text and back, and caches the last conversion: most
// leases of a batch have equal details.
type detailsText struct {
	details *protocol.Details
	text    string
}

func (d *detailsText) encode(details *protocol.Details) string {
	if details != d.details && (details == nil || d.details == nil || *details != *d.details) {
		d.details, d.text = details, details.Encode()
	}
	return d.text
}

func (d *detailsText) decode(r *row) *protocol.Details {
	if text := r.text(); text != d.text {
		details, err := protocol.DecodeDetails(text)
		r.err = errors.Join(r.err, err)
		if d.details, d.text = nil, text; text != "" {
			d.details = &details
		}
	}
	return d.details
}

// load returns the stored semaphore, or the tombstone of its name.
func (f *file) load(name string) (s stored, err error) {
	var config string
	im := &s.image
	err = f.find.find(name, func(r *row) {
		s.rows.id, config = r.integer(), r.text()
		im.RampFrom, im.RampAt, im.Last, im.Clock = r.integer(), protocol.Micros(r.integer()), protocol.Micros(r.integer()), protocol.Micros(r.integer())
		im.LastSession, im.LastSeq, im.Renewals = protocol.Session(r.integer()), protocol.Seq(r.integer()), uint64(r.integer())
	})
	switch {
	case err == nil && s.rows.id == 0:
		err = f.findTombstone.find(name, func(r *row) { s.tombstone = protocol.Seq(r.integer()) })
	case err == nil:
		err = errors.Join(decode(config, &im.Config), f.readSessions(&s), f.readLeases(&s), f.readQueue(&s), f.readSpending(&s))
	}
	if err != nil {
		return s, fmt.Errorf("semaphore %q cannot be read: %w", name, err)
	}
	return s, nil
}

// decode parses JSON. It rejects unknown fields, which a newer program may have added,
// instead of losing them.
func decode(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (f *file) readSessions(s *stored) error {
	return f.loadSessions.find(s.rows.id, func(r *row) {
		im := protocol.SessionImage{
			ID: protocol.Session(r.integer()), Client: readClient(r), Owner: readOwner(r), Seq: uint64(r.integer()), Deadline: protocol.Micros(r.integer()),
			Renewed: protocol.Micros(r.integer()), Renewal: uint64(r.integer()), LastResult: uint64(r.integer()), Recalled: r.flag(), Extended: r.flag(),
		}
		var results []storedResult
		r.err = errors.Join(r.err, decode(r.text(), &results))
		for _, one := range results {
			im.Results = append(im.Results, one.result())
		}
		s.image.Sessions = append(s.image.Sessions, im)
	})
}

func readClient(r *row) protocol.Client {
	instance := r.text()
	client, err := protocol.DecodeClient(instance, r.text())
	r.err = errors.Join(r.err, err)
	return client
}

func readOwner(r *row) protocol.Owner {
	key, err := protocol.ParseKey(r.text())
	r.err = errors.Join(r.err, err)
	return protocol.Owner{Key: key, Principal: r.text()}
}

func (f *file) readLeases(s *stored) error {
	var details detailsText
	return f.loadLeases.find(s.rows.id, func(r *row) {
		s.image.Leases = append(s.image.Leases, protocol.LeaseImage{
			Seq: protocol.Seq(r.integer()), Session: protocol.Session(r.integer()), Weight: r.integer(), Pooled: r.flag(), Revoked: r.flag(),
			Since: protocol.Micros(r.integer()), Slots: protocol.Slots(r.text()), Details: details.decode(r),
		})
	})
}

func (f *file) readQueue(s *stored) error {
	var details detailsText
	return f.loadQueue.find(s.rows.id, func(r *row) {
		s.rows.places = r.integer()
		s.image.Queue = append(s.image.Queue, protocol.TicketImage{
			Session: protocol.Session(r.integer()), Ticket: protocol.Ticket(r.integer()), Weight: r.integer(), Least: r.integer(),
			Until: protocol.Micros(r.integer()), Pooled: r.flag(), Since: protocol.Micros(r.integer()), Details: details.decode(r),
		})
	})
}

func (f *file) readSpending(s *stored) error {
	err := f.loadSpending.find(s.rows.id, func(r *row) {
		s.rows.spent = append(s.rows.spent, protocol.SpentImage{
			Until: protocol.Micros(r.integer()), Weight: r.integer(), Seq: protocol.Seq(r.integer()), Session: protocol.Session(r.integer()),
		})
	})
	s.image.Spent = s.rows.spent
	return err
}

// inUse returns the names of semaphores that have sessions.
func (f *file) inUse() (map[string]bool, error) {
	names := map[string]bool{}
	err := f.query("SELECT name FROM semaphore WHERE id IN (SELECT semaphore FROM session)", func(r *row) { names[r.text()] = true })
	return names, err
}
