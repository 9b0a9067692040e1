//go:build race

package etcdstore

const defaultHistories = fewHistories
