//go:build !race

package prom_test

const raceFactor = 1
