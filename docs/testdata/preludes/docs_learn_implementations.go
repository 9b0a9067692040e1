// Package prelude declares what blocks of docs/learn/implementations.md use without declaring it.
package prelude

type Cond struct {
	mu    sync.Mutex
	freed sync.Cond
	free  int
}

type Spin struct{ free atomic.Int64 }

type teachingQueue struct {
	mu      sync.Mutex
	free    int
	waiters list.List
}

func (s *teachingQueue) serveLocked() {}

var (
	s     *teachingQueue
	w     struct{ granted chan struct{} }
	place *list.Element
	n     int
)
