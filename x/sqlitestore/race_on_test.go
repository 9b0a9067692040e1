//go:build race

package sqlitestore

// histories is the number of random histories in the conformance tests. It is low under
// the race detector, which makes SQLite's code slow. make conformance runs all of them.
const histories = 60
