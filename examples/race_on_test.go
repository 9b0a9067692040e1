//go:build race

package examples_test

var raceFlags = []string{"-race"}
