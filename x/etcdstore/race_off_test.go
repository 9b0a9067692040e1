//go:build !race

package etcdstore

const defaultHistories = 1000
