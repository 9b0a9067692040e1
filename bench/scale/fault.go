package main

import "github.com/sema-go/sema/fleet/protocol"

// A fault happens to a region or its instances for some time.
type fault struct {
	from, to     protocol.Micros
	region       int
	demandFactor float64 // demand is multiplied by it; 0: unchanged
	cut          bool    // the network between the region and the global store is cut
	crash        int     // this many instances crash, and restart at the end
}

// setFault begins or ends a fault.
func (w *world) setFault(f *fault, begins bool) {
	r := w.regions[f.region]
	switch {
	case f.demandFactor != 0 && begins:
		r.demandFactor = f.demandFactor
	case f.demandFactor != 0:
		r.demandFactor = 1
	case f.cut:
		r.link().cut = begins
	case begins:
		for i := range f.crash {
			w.crash(w.victim(f, i))
		}
	default:
		for i := range f.crash {
			w.restart(w.victim(f, i))
		}
	}
}

// victim returns one of the region's instances.
func (w *world) victim(f *fault, i int) *instance {
	return &w.instances[f.region+i*len(w.regions)]
}

// crash ends a process. It stops using its permits without a message to the
// store.
func (w *world) crash(in *instance) {
	in.sessionLost()
	in.queue, in.head = in.queue[:0], 0
	in.crashes++
	l := in.link()
	l.generation++
	l.down, l.peer, l.timer = true, nil, 0
	w.m.crashed++
}

func (w *world) restart(in *instance) {
	in.link().down = false
	in.next()
	w.open(in.id)
}
