package sqlitestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sema-go/sema/fleet/protocol"
)

// SQLite's integers have a sign. Numbers of the protocol that have none are
// stored as the integers with the same bits.

// write puts the changes of a semaphore into the transaction.
func (f *file) write(k *kept) error {
	if k.rows.stale {
		if err := f.removeRows(k.rows.id); err != nil {
			return err
		}
	}
	if k.state == nil {
		return f.bury(k)
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
	if err := f.writeLine(k, c); err != nil {
		return err
	}
	if c.Respent {
		return f.writeSpending(k, c.Image.Last, c.Spent)
	}
	return nil
}

// removeRows removes all that a semaphore has, but for its own row.
func (f *file) removeRows(id int64) error {
	for _, purge := range f.purge {
		if _, err := purge.exec(values{}.with(id)); err != nil {
			return err
		}
	}
	return nil
}

// bury leaves of a semaphore only where the fences of its name have come to.
func (f *file) bury(k *kept) error {
	if _, err := f.deleteSemaphore.exec(values{}.with(k.rows.id)); err != nil {
		return err
	}
	_, err := f.statements.bury.exec(values{}.with(k.name, int64(k.tombstone)))
	return err
}

func (f *file) writeSemaphore(k *kept, im protocol.Image) error {
	config, err := json.Marshal(im.Config)
	if err != nil {
		return err
	}
	plain := values{}.with(string(config), im.RampFrom, int64(im.RampAt), int64(im.Last), int64(im.Clock),
		int64(im.LastSession), int64(im.LastSeq), int64(im.Renewals))
	if k.rows.id != 0 {
		_, err = f.updateSemaphore.exec(plain.with(k.rows.id))
		return err
	}
	made, err := f.insertSemaphore.exec(plain.with(k.name))
	if err != nil {
		return err
	}
	if k.rows.id, err = made.LastInsertId(); err != nil {
		return err
	}
	if _, err = f.unbury.exec(values{}.with(k.name)); err != nil {
		return err
	}
	return f.removeRows(k.rows.id) // of one that a person deleted by hand
}

func (f *file) writeSessions(id int64, c *protocol.Changes) error {
	v := make(values, 0, 13*len(c.Sessions))
	for _, s := range c.Sessions {
		results, err := json.Marshal(withoutFences(s.Results))
		if err != nil {
			return err
		}
		v = v.with(id, int64(s.ID), s.Instance, s.Owner.Key.Hex(), s.Owner.Principal, int64(s.Seq), int64(s.Deadline), int64(s.Seen), int64(s.Renewal),
			int64(s.LastResult), s.Recalled, s.Extended, string(results))
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

// A storedResult is a result without its fence, which is made anew for each reply.
type storedResult struct {
	protocol.Result
	Fence *struct{} `json:",omitempty"`
}

func withoutFences(results []protocol.Result) []storedResult {
	all := make([]storedResult, len(results))
	for i, result := range results {
		all[i].Result = result
	}
	return all
}

func (f *file) writeLeases(id int64, c *protocol.Changes) error {
	v := make(values, 0, max(2*len(c.Dropped), 8*len(c.Leases)))
	for _, seq := range c.Dropped {
		v = v.with(id, int64(seq))
	}
	if err := f.dropLeases.exec(v); err != nil {
		return err
	}
	v = v[:0]
	for _, l := range c.Leases {
		v = v.with(id, int64(l.Seq), int64(l.Session), l.Weight, l.Pooled, l.Revoked, int64(l.Since), l.Meta)
	}
	return f.putLeases.exec(v)
}

// writeLine removes those who left first: one of their names may have come
// again.
func (f *file) writeLine(k *kept, c *protocol.Changes) error {
	v := make(values, 0, max(3*len(c.Left), 9*len(c.Queue)))
	for _, t := range c.Left {
		v = v.with(k.rows.id, int64(t.Session), int64(t.Ticket))
	}
	if err := f.dropTickets.exec(v); err != nil {
		return err
	}
	v = v[:0]
	for _, t := range c.Queue {
		k.rows.places++
		v = v.with(k.rows.id, int64(t.Session), int64(t.Ticket), k.rows.places, t.Weight, t.Least, int64(t.Until), t.Pooled, t.Meta)
	}
	return f.putTickets.exec(v)
}

// writeSpending writes what is new at the end and removes what has passed at the
// front. If that is not all the difference (a clock stepped back), it writes
// everything.
func (f *file) writeSpending(k *kept, now protocol.Micros, spent []protocol.SpentImage) error {
	old := k.rows.spent
	passed := slices.IndexFunc(old, func(s protocol.SpentImage) bool { return s.Until > now })
	if passed < 0 {
		passed = len(old)
	}
	left := old[passed:]
	first, added := k.rows.first+int64(passed), spent
	if len(left) <= len(spent) && slices.Equal(left, spent[:len(left)]) {
		added = spent[len(left):]
		if _, err := f.dropSpending.exec(values{}.with(k.rows.id, first)); err != nil {
			return err
		}
	} else {
		first, left = 0, nil
		if _, err := f.purgeSpending.exec(values{}.with(k.rows.id)); err != nil {
			return err
		}
	}
	k.rows.spent, k.rows.first = spent, first
	v := make(values, 0, 4*len(added))
	for i, s := range added {
		v = v.with(k.rows.id, first+int64(len(left)+i), int64(s.Until), s.Weight)
	}
	return f.putSpending.exec(v)
}

// load reads what the file has of a name.
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
		err = errors.Join(decode(config, &im.Config), f.readSessions(&s), f.readLeases(&s), f.readLine(&s), f.readSpending(&s))
	}
	if err != nil {
		return s, fmt.Errorf("semaphore %q cannot be read: %w", name, err)
	}
	return s, nil
}

// decode refuses what a newer program has added, instead of losing it.
func decode(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func (f *file) readSessions(s *stored) error {
	return f.loadSessions.find(s.rows.id, func(r *row) {
		im := protocol.SessionImage{
			ID: protocol.Session(r.integer()), Instance: r.text(), Owner: readOwner(r), Seq: uint64(r.integer()), Deadline: protocol.Micros(r.integer()),
			Seen: protocol.Micros(r.integer()), Renewal: uint64(r.integer()), LastResult: uint64(r.integer()), Recalled: r.flag(), Extended: r.flag(),
		}
		var results []storedResult
		r.err = errors.Join(r.err, decode(r.text(), &results))
		for _, result := range results {
			im.Results = append(im.Results, result.Result)
		}
		s.image.Sessions = append(s.image.Sessions, im)
	})
}

func readOwner(r *row) (o protocol.Owner) {
	key, err := protocol.ParseKey(r.text())
	r.err = errors.Join(r.err, err)
	return protocol.Owner{Key: key, Principal: r.text()}
}

func (f *file) readLeases(s *stored) error {
	return f.loadLeases.find(s.rows.id, func(r *row) {
		s.image.Leases = append(s.image.Leases, protocol.LeaseImage{
			Seq: protocol.Seq(r.integer()), Session: protocol.Session(r.integer()), Weight: r.integer(), Pooled: r.flag(), Revoked: r.flag(),
			Since: protocol.Micros(r.integer()), Meta: r.text(),
		})
	})
}

func (f *file) readLine(s *stored) error {
	return f.loadLine.find(s.rows.id, func(r *row) {
		s.rows.places = r.integer()
		s.image.Queue = append(s.image.Queue, protocol.TicketImage{
			Session: protocol.Session(r.integer()), Ticket: protocol.Ticket(r.integer()), Weight: r.integer(), Least: r.integer(),
			Until: protocol.Micros(r.integer()), Pooled: r.flag(), Meta: r.text(),
		})
	})
}

func (f *file) readSpending(s *stored) error {
	return f.loadSpending.find(s.rows.id, func(r *row) {
		if n := r.integer(); len(s.rows.spent) == 0 {
			s.rows.first = n
		}
		s.rows.spent = append(s.rows.spent, protocol.SpentImage{Until: protocol.Micros(r.integer()), Weight: r.integer()})
		s.image.Spent = s.rows.spent
	})
}

// inUse returns the names of semaphores that have sessions.
func (f *file) inUse() (map[string]bool, error) {
	names := map[string]bool{}
	err := f.query("SELECT name FROM semaphore WHERE id IN (SELECT semaphore FROM session)", func(r *row) { names[r.text()] = true })
	return names, err
}

// names are those of semaphores that begin with a prefix.
func (f *file) names(prefix string) (all []string, err error) {
	all = []string{}
	err = f.list.find(prefix, func(r *row) { all = append(all, r.text()) })
	return all, err
}
