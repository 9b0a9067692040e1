package main

import "github.com/sema-go/sema/fleet/protocol"

// A fault is something that happens to a region, or to its instances, for a
// while.
type fault struct {
	from, to protocol.Micros
	region   int
	crowd    float64 // demand is multiplied by it, if it is not 0
	cut      bool    // the region and the global engine do not hear each other
	crash    int     // so many instances die, and are back in the end
}

// strike begins or ends a fault.
func (w *world) strike(f *fault, begins bool) {
	r := w.regions[f.region]
	switch {
	case f.crowd != 0 && begins:
		r.crowd = f.crowd
	case f.crowd != 0:
		r.crowd = 1
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

// victim is one of the region's instances.
func (w *world) victim(f *fault, i int) *instance {
	return &w.instances[f.region+i*len(w.regions)]
}

// crash ends a process: what it used it uses no longer, and nobody tells the
// engine.
func (w *world) crash(in *instance) {
	in.lose()
	in.line, in.head = in.line[:0], 0
	in.starts++
	l := in.link()
	l.life++
	l.down, l.peer, l.timer = true, nil, 0
	w.m.crashed++
}

func (w *world) restart(in *instance) {
	in.link().down = false
	in.next()
	w.open(in.id)
}
