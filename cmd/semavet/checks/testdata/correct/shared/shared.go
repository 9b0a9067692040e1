// Package shared exports a semaphore.
package shared

import "golang.org/x/sync/semaphore"

// Sem is acquired by one package and released by another.
var Sem = semaphore.NewWeighted(1)
