// Package prelude declares what blocks of docs/learn/distributed.md use without declaring it.
package prelude

var db *fleet.Semaphore

func query(context.Context) error
