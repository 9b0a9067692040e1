package desk

import "github.com/sema-go/sema/fleet"

// Remembered is how much the desk knows.
func (d *Desk) Remembered() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.visits) + len(d.idle) + len(d.lines) + len(d.released) + len(d.asking) + len(d.sights)
}

// Standing is in how many lines somebody waits.
func (d *Desk) Standing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lines)
}

// Engine is what the desk speaks to.
func (d *Desk) Engine() fleet.Store { return d.store }
