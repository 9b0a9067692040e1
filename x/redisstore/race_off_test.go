//go:build !race

package redisstore

const defaultHistories = 3000
