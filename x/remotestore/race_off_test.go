//go:build !race

package remotestore

const histories = 3000
