//go:build race

package sqlitestore

// histories are few under the race detector, for which SQLite's own code is
// slow. make conformance leads the engine through all of them.
const histories = 60
