package sqlitestore

import (
	"strconv"
	"strings"
)

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

	s.putSessions = c.put("session", 6, "semaphore", "instance", "client", "principal", "recalled", "extended", "id", "key", "seq", "deadline", "renewed", "renewal", "last_result", "results")
	s.putLeases = c.put("lease", 6, "semaphore", "weight", "pooled", "revoked", "slots", "details", "seq", "session", "since")
	s.putTickets = c.put("ticket", 0, "semaphore", "session", "id", "place", "weight", "least", "until", "pooled", "since", "details")
	s.putSpending = c.put("spending", 0, "semaphore", "seq", "session", "until", "weight")
	s.endSessions = c.remove("session", "semaphore", "id")
	s.dropLeases = c.remove("lease", "semaphore", "seq")
	s.dropTickets = c.remove("ticket", "semaphore", "session", "id")
	return s
}

// A manyRows writes or deletes any number of rows in portions of fixed sizes. One statement for
// several rows is faster than one statement per row.
//
// Parameters take a third of the time of a row. The first columns of a row, the common ones, mostly
// have the same values in all rows of a portion, and are then parameters of the portion.
type manyRows struct {
	width    int      // values per row
	common   int      // number of common columns
	portions portions // each row has all parameters
	shared   portions // the common values are the first parameters
	buffer   values   // for exec
}

// portions are the statements for as many rows as [portionSizes] states.
type portions [len(portionSizes)]*statement

var portionSizes = [...]int{64, 32, 16, 8, 4, 2, 1}

// put returns statements that insert rows, or replace rows with the same key.
func (c *connection) put(table string, common int, columns ...string) manyRows {
	width := len(columns)
	query := "INSERT OR REPLACE INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES "
	m := manyRows{width: width, common: common, portions: c.portions(query, "(?"+strings.Repeat(", ?", width-1)+")", ", ")}
	if common > 0 {
		row := "("
		for i := range common {
			row += "?" + strconv.Itoa(i+1) + ", " // and a ? has the next number after the highest one
		}
		m.shared = c.portions(query, row+"?"+strings.Repeat(", ?", width-common-1)+")", ", ")
	}
	return m
}

// remove returns statements that delete rows by their keys.
func (c *connection) remove(table string, key ...string) manyRows {
	return manyRows{width: len(key), portions: c.portions("DELETE FROM "+table+" WHERE ", "("+strings.Join(key, " = ? AND ")+" = ?)", " OR ")}
}

func (c *connection) portions(query, row, between string) (p portions) {
	for i, n := range portionSizes {
		p[i] = c.statement(query + row + strings.Repeat(between+row, n-1))
	}
	return p
}

// exec writes all rows. v contains their values, one row after the other.
func (m *manyRows) exec(v values) error {
	for i, n := range portionSizes {
		for n *= m.width; len(v) >= n; v = v[n:] {
			if err := m.execPortion(i, v[:n]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *manyRows) execPortion(i int, v values) error {
	if !m.sharesCommon(v) {
		_, err := m.portions[i].exec(v)
		return err
	}
	shared := append(m.buffer[:0], v[:m.common]...)
	for ; len(v) > 0; v = v[m.width:] {
		shared = append(shared, v[m.common:m.width]...)
	}
	_, err := m.shared[i].exec(shared)
	clear(shared)
	m.buffer = shared
	return err
}

// sharesCommon reports whether there are several rows with equal values in the common columns.
func (m *manyRows) sharesCommon(v values) bool {
	if m.common == 0 || len(v) == m.width {
		return false
	}
	for row := v[m.width:]; len(row) > 0; row = row[m.width:] {
		for i := range m.common {
			if row[i].Value != v[i].Value {
				return false
			}
		}
	}
	return true
}
