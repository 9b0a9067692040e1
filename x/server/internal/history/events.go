package history

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"time"
)

// An Event is a change by an operator, or a restart of the server.
type Event struct {
	At        time.Time `json:"at"`
	Semaphore string    `json:"semaphore,omitempty"` // "": all
	Kind      string    `json:"kind"`                // resize, configure, drain, resume, revoke, delete, restart
	By        string    `json:"by,omitempty"`
	Detail    string    `json:"detail,omitempty"`
}

const (
	// mostEvents bounds the events, and mostOfOne those of one semaphore, so that a client cannot
	// push out those of others.
	mostEvents = 4096
	mostOfOne  = 100
)

// events contains the events of the last [Long], oldest first.
type events struct {
	all  []Event
	file *log // nil: memory only
}

// Note adds an event.
func (h *History) Note(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events.add(e)
	if h.events.file != nil {
		record, err := json.Marshal(e)
		if err == nil {
			err = h.events.file.append(record)
		}
		h.failed = err
	}
}

// add adds an event, and drops what is too old or too much.
func (v *events) add(e Event) {
	of, oldest := 0, -1
	for i, other := range v.all {
		if other.Semaphore == e.Semaphore {
			if of++; oldest < 0 {
				oldest = i
			}
		}
	}
	if of >= mostOfOne {
		v.all = append(v.all[:oldest], v.all[oldest+1:]...)
	}
	for len(v.all) > 0 && (len(v.all) >= mostEvents || e.At.Sub(v.all[0].At) > Long) {
		v.all = v.all[1:]
	}
	v.all = append(v.all, e)
}

// Events returns the events of a semaphore, and those of all, since a time.
func (h *History) Events(name string, since time.Time) (found []Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.events.all {
		if (e.Semaphore == name || e.Semaphore == "") && !e.At.Before(since) {
			found = append(found, e)
		}
	}
	return found
}

// load reads the events of a directory, and writes those that are kept to a new file.
func (v *events) load(directory string, now time.Time) error {
	path := filepath.Join(directory, "events")
	_ = read(path, func(record []byte) error {
		var e Event
		if json.Unmarshal(record, &e) == nil && now.Sub(e.At) <= Long {
			v.add(e)
		}
		return nil
	})
	v.file = &log{directory: directory, name: "events"}
	if err := v.file.start(path); err != nil {
		return err
	}
	for _, e := range v.all {
		record, err := json.Marshal(e)
		if err == nil {
			err = v.file.append(record)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AllEvents returns the events of all semaphores that are kept, the latest first.
func (h *History) AllEvents() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.events.all)
	slices.Reverse(all)
	return all
}
