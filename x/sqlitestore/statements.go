package sqlitestore

import "strings"

// statements contains the statements that are compiled once per connection.
type statements struct {
	begin, commit *statement

	find, findTombstone                               *statement
	loadSessions, loadLeases, loadQueue, loadSpending *statement
	list                                              *statement

	insertSemaphore, updateSemaphore, deleteSemaphore *statement
	insertTombstone, deleteTombstone                  *statement
	purge                                             []*statement
	dropSpending, purgeSpending                       *statement

	putSessions, endSessions manyRows
	putLeases, dropLeases    manyRows
	putTickets, dropTickets  manyRows
	putSpending              manyRows
}

func newStatements(c *connection) (s statements) {
	s.begin = c.statement("BEGIN IMMEDIATE")
	s.commit = c.statement("COMMIT")

	s.find = c.statement("SELECT id, config, ramp_from, ramp_at, last, clock, last_session, last_seq, renewals FROM semaphore WHERE name = ?")
	s.findTombstone = c.statement("SELECT seq FROM tombstone WHERE name = ?")
	s.loadSessions = c.statement("SELECT id, instance, client, key, principal, seq, deadline, renewed, renewal, last_result, recalled, extended, results FROM session WHERE semaphore = ? ORDER BY renewal")
	s.loadLeases = c.statement("SELECT seq, session, weight, pooled, revoked, since, slots, details FROM lease WHERE semaphore = ? ORDER BY seq")
	s.loadQueue = c.statement("SELECT place, session, id, weight, least, until, pooled, since, details FROM ticket WHERE semaphore = ? ORDER BY place")
	s.loadSpending = c.statement("SELECT until, weight, seq, session FROM spending WHERE semaphore = ? ORDER BY seq")
	s.list = c.statement(`SELECT name, config, ramp_from, ramp_at, last,
		in_use - (SELECT coalesce(sum(weight), 0) FROM spending WHERE spending.semaphore = semaphore.id AND until <= ?4), leases, waiting, sessions
		FROM semaphore WHERE name >= ?1 AND name < ?2 ORDER BY name LIMIT ?3`)

	s.insertSemaphore = c.statement("INSERT INTO semaphore (config, ramp_from, ramp_at, last, clock, last_session, last_seq, renewals, in_use, leases, waiting, sessions, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
	s.updateSemaphore = c.statement("UPDATE semaphore SET config = ?, ramp_from = ?, ramp_at = ?, last = ?, clock = ?, last_session = ?, last_seq = ?, renewals = ?, in_use = ?, leases = ?, waiting = ?, sessions = ? WHERE id = ?")
	s.deleteSemaphore = c.statement("DELETE FROM semaphore WHERE id = ?")
	s.insertTombstone = c.statement("INSERT OR REPLACE INTO tombstone (name, seq) VALUES (?, ?)")
	s.deleteTombstone = c.statement("DELETE FROM tombstone WHERE name = ?")
	for _, table := range []string{"session", "lease", "ticket", "spending"} {
		s.purge = append(s.purge, c.statement("DELETE FROM "+table+" WHERE semaphore = ?"))
	}
	s.dropSpending = c.statement("DELETE FROM spending WHERE semaphore = ? AND seq < ?")
	s.purgeSpending = c.statement("DELETE FROM spending WHERE semaphore = ?")

	s.putSessions = c.put("session", "semaphore", "id", "instance", "client", "key", "principal", "seq", "deadline", "renewed", "renewal", "last_result", "recalled", "extended", "results")
	s.putLeases = c.put("lease", "semaphore", "seq", "session", "weight", "pooled", "revoked", "since", "slots", "details")
	s.putTickets = c.put("ticket", "semaphore", "session", "id", "place", "weight", "least", "until", "pooled", "since", "details")
	s.putSpending = c.put("spending", "semaphore", "seq", "session", "until", "weight")
	s.endSessions = c.remove("session", "semaphore", "id")
	s.dropLeases = c.remove("lease", "semaphore", "seq")
	s.dropTickets = c.remove("ticket", "semaphore", "session", "id")
	return s
}

// A manyRows writes or deletes any number of rows in portions of fixed sizes. One statement for
// several rows is faster than one statement per row.
type manyRows struct {
	width    int // values per row
	portions [len(portions)]*statement
}

var portions = [...]int{64, 32, 16, 8, 4, 2, 1}

// put returns statements that insert rows, or replace rows with the same key.
func (c *connection) put(table string, columns ...string) manyRows {
	row := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	return c.manyRows("INSERT OR REPLACE INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ", row, ", ")
}

// remove returns statements that delete rows by their keys.
func (c *connection) remove(table string, key ...string) manyRows {
	return c.manyRows("DELETE FROM "+table+" WHERE ", "("+strings.Join(key, " = ? AND ")+" = ?)", " OR ")
}

func (c *connection) manyRows(query, row, between string) (m manyRows) {
	m.width = strings.Count(row, "?")
	for i, n := range portions {
		m.portions[i] = c.statement(query + row + strings.Repeat(between+row, n-1))
	}
	return m
}

// exec writes all rows. v contains their values, one row after the other.
func (m manyRows) exec(v values) error {
	for i, n := range portions {
		for n *= m.width; len(v) >= n; v = v[n:] {
			if _, err := m.portions[i].exec(v[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}
