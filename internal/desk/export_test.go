package desk

// Remembered is how much the desk knows.
func (d *Desk) Remembered() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.visits) + len(d.idle) + len(d.lines) + len(d.released) + len(d.asking)
}

// Standing is in how many lines somebody waits.
func (d *Desk) Standing() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.lines)
}
