//go:build race

package wfq_test

const raceEnabled = true
