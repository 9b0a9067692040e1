package fleet

import (
	"context"
	"sync"
)

// workers are goroutines that end with a life.
type workers struct {
	life     context.Context
	kill     context.CancelFunc
	group    sync.WaitGroup
	starting sync.Mutex // held to start one, and to end the life after which none is
}

// begin begins the life.
func (w *workers) begin() { w.life, w.kill = context.WithCancel(context.Background()) }

// start starts one, unless the life is over.
func (w *workers) start(work func()) bool {
	w.starting.Lock()
	defer w.starting.Unlock()
	if w.life.Err() != nil {
		return false
	}
	w.group.Go(work)
	return true
}

// end ends the life, and waits for them.
func (w *workers) end() {
	w.starting.Lock()
	w.kill()
	w.starting.Unlock()
	w.group.Wait()
}
