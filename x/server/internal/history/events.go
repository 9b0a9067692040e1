package history

import (
	"encoding/json"
	"fmt"
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
	// mostEvents bounds the events, and mostOfOne those of one semaphore. When there are too many,
	// the oldest event of the operator with the most events is dropped: so no operator can push
	// out those of others.
	mostEvents = 4096
	mostOfOne  = 100
	// slack is the number of outdated records after which the file is written anew.
	slack = 256
)

// events contains the events of the last [Long], in the order in which they were noted.
type events struct {
	all     []Event
	by      map[string]int // number of events by operator
	of      map[string]int // by semaphore
	file    *log           // nil: memory only
	path    string
	records int   // in the file
	err     error // why the file is incomplete; nil: it is complete
}

// Note adds an event.
func (h *History) Note(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &h.events
	v.add(e)
	if v.file == nil || v.err != nil {
		return // or tidy writes it
	}
	record, err := json.Marshal(e)
	if err == nil {
		v.file.append(record)
		err = v.file.err
	}
	v.records++
	v.err = err
}

// add adds an event, and drops what is too old or too much.
func (v *events) add(e Event) {
	if v.by == nil {
		v.by, v.of = map[string]int{}, map[string]int{}
	}
	for len(v.all) > 0 && e.At.Sub(v.all[0].At) > Long {
		v.drop(0)
	}
	if v.of[e.Semaphore] >= mostOfOne {
		v.drop(slices.IndexFunc(v.all, func(o Event) bool { return o.Semaphore == e.Semaphore }))
	}
	if len(v.all) >= mostEvents {
		most := e.By
		for by, n := range v.by {
			if n > v.by[most] {
				most = by
			}
		}
		v.drop(slices.IndexFunc(v.all, func(o Event) bool { return o.By == most }))
	}
	v.all = append(v.all, e)
	v.by[e.By]++
	v.of[e.Semaphore]++
}

func (v *events) drop(i int) {
	e := v.all[i]
	v.all = slices.Delete(v.all, i, i+1)
	decrement(v.by, e.By)
	decrement(v.of, e.Semaphore)
}

func decrement(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
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

// AllEvents returns the events of all semaphores that are kept, the latest first.
func (h *History) AllEvents() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Clone(h.events.all)
	slices.Reverse(all)
	return all
}

// load reads the events of a directory.
func (v *events) load(directory string, now time.Time) error {
	v.path = filepath.Join(directory, "events")
	err := read(v.path, func(record []byte) error {
		var e Event
		if json.Unmarshal(record, &e) == nil && now.Sub(e.At) <= Long {
			v.add(e)
		}
		return nil
	})
	if err != nil && !missing(err) {
		return fmt.Errorf("open the history: %w", err)
	}
	v.file = &log{path: v.path}
	v.rewrite() // the file may end with a record in part
	return nil
}

// tidy writes the file anew if events are missing in it, or if most of its records are outdated.
func (v *events) tidy() {
	if v.file != nil && (v.err != nil || v.records > 2*len(v.all)+slack) {
		v.rewrite()
	}
}

// rewrite replaces the file by one with the events that are kept.
func (v *events) rewrite() {
	content := []byte(magic)
	for _, e := range v.all {
		if record, err := json.Marshal(e); err == nil {
			content = frame(content, record)
		}
	}
	_ = v.file.close() // Windows replaces no open file
	if err := replace(v.path, content); err != nil {
		v.err = fmt.Errorf("write the history: %w", err)
		return
	}
	v.file = &log{path: v.path, good: int64(len(content))}
	v.records, v.err = len(v.all), nil
}
