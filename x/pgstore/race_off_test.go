//go:build !race

package pgstore

const defaultHistories = 500
