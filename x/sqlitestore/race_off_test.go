//go:build !race

package sqlitestore

// histories are how many random ones the engine is led through.
const histories = 3000
