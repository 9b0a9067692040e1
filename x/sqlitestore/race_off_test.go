//go:build !race

package sqlitestore

// histories is the number of random histories in the conformance tests.
const histories = 3000
