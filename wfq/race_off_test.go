//go:build !race

package wfq_test

const raceEnabled = false
