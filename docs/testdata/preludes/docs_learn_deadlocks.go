// Package prelude declares what blocks of docs/learn/deadlocks.md use without declaring it.
package prelude

type account struct {
	lock    *sema.Semaphore
	balance int
}

var (
	mu    sync.Mutex
	empty *sema.Counter
	ring  []string
	item  string
	db    *sema.Semaphore
	rows  int
)
