// Package prelude declares what blocks of docs/semavet.md use without declaring it.
package prelude

var s *sema.Semaphore
