package measure

import (
	"reflect"
	"slices"
	"strings"

	"github.com/sema-go/sema/registry"
)

// A label is the name and the backend under which a gate is exported.
type label struct{ name, backend string }

// The backends: where the state of a gate is.
const (
	backendProcess = "process"
	backendHost    = "host"
	backendFleet   = "fleet"
)

// rest is the label of what exceeds the bound of names.
var rest = label{Other, backendProcess}

// labelOf returns the label of a registered gate. The backend follows from its type.
func labelOf(l *registry.Limit) label {
	pkg, _, _ := strings.Cut(l.Kind, ".")
	switch {
	case pkg == "fleet":
		return label{l.Name, backendFleet}
	case pkg == "host", pkg == "posix", pkg == "sysv":
		return label{l.Name, backendHost}
	case l.Shared:
		return label{l.Name, backendFleet}
	}
	return label{l.Name, backendProcess}
}

// eventName returns the name in the events of a gate.
func eventName(l *registry.Limit) string {
	if named, ok := l.Gate.(interface{ Name() string }); ok && named.Name() != "" {
		return named.Name()
	}
	return l.Name
}

// clean returns a name as the value of a label, which must be UTF-8.
func clean(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// sources returns the registries, which are only appended to.
func (s *Set) sources() []*registry.Registry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.registries
}

// registered returns the label of the gate with a name in its events, if it is registered.
// It reads no other gates, so that an event costs the same however many there are.
func (s *Set) registered(name string) (label, bool) {
	for _, r := range s.sources() {
		if l, ok := r.Observed(name); ok {
			return labelOf(&l), true
		}
	}
	return label{}, false
}

// taken reports whether a registered gate has a label, whatever the name in its events.
func (s *Set) taken(as label) bool {
	return slices.ContainsFunc(s.sources(), func(r *registry.Registry) bool {
		l, ok := r.Get(as.name)
		return ok && labelOf(&l) == as
	})
}

// keyOfLocked splits the name of the semaphore of a key into that of the group and the key.
func (s *Set) keyOfLocked(name string) (of, key string, ok bool) {
	for i := len(name) - 1; i > 0 && len(s.keyed) > 0; i-- {
		if name[i] == '/' && s.keyed[name[:i]] != nil {
			return name[:i], name[i+1:], true
		}
	}
	return "", "", false
}

// A census is what is exported at one collection.
type census struct {
	limits  []registry.Limit
	keyed   map[string]*keyed
	labels  map[label]bool // of both
	clashes map[label]int  // gates that are left out of series, because another one has the name
}

// count returns all gates that are exported. Of several with the same label, that is the
// first one: a second value of a series would make the whole scrape fail.
func (s *Set) count() *census {
	c := &census{keyed: map[string]*keyed{}, labels: map[label]bool{}, clashes: map[label]int{}}
	gates := map[label]any{}
	for _, r := range s.sources() {
		for _, l := range r.All() {
			as := labelOf(&l)
			if first, ok := gates[as]; ok {
				if !same(first, l.Gate) {
					c.clashes[as]++
				}
				continue
			}
			gates[as], c.labels[as] = l.Gate, true
			c.limits = append(c.limits, l)
			// The distributions of gates with the same name in their events are those of the
			// first one.
			if to, ok := s.registered(eventName(&l)); ok && to != as {
				c.clashes[as]++
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, k := range s.keyed {
		as := label{name, backendProcess}
		if c.labels[as] {
			c.clashes[as]++
			continue
		}
		c.keyed[name], c.labels[as] = k, true
	}
	return c
}

// same reports whether two values are the same gate.
func same(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Kind() == reflect.Pointer && a == b
}

// settle makes the series follow the gates that are exported. Series whose gate was removed
// are dropped, so that names may come and go, and so are those that were created before
// their gate was added under another name.
func (s *Set) settle(c *census) {
	type entry struct {
		key        key
		to         *target
		registered bool
	}
	var outdated []entry
	s.series.Range(func(k, v any) bool {
		e := entry{key: k.(key), to: v.(*target)}
		as, ok := s.registered(e.key.name)
		s.mu.Lock()
		if of, _, keyed := s.keyOfLocked(e.key.name); keyed {
			as, ok = label{of, backendProcess}, true
		}
		s.mu.Unlock()
		e.registered = ok
		if to := e.to.series; ok && as != (label{to.Semaphore, to.Backend}) || !ok && c.labels[label{to.Semaphore, to.Backend}] {
			outdated = append(outdated, e)
		}
		return true
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.countObservedLocked(c)
	for _, e := range outdated {
		s.series.Delete(e.key)
		if to := e.to.series; !c.labels[label{to.Semaphore, to.Backend}] {
			s.dropLocked(labels{to.Backend, to.Semaphore, to.Class})
		} else if !e.registered {
			s.clashed[label{to.Semaphore, to.Backend}] = true // the events of two gates went there
		}
	}
	for _, series := range s.list {
		if series.undeclared && c.labels[label{series.Semaphore, series.Backend}] {
			series.undeclared = false
			s.undeclared--
		}
	}
	live := func(as label) bool {
		whole := s.list[labels{as.backend, as.name, ""}]
		return c.labels[as] || as.backend == backendProcess && s.declared[as.name] || whole != nil && whole.undeclared
	}
	dropped := map[*Series]bool{}
	for k, series := range s.list {
		if !live(label{k.semaphore, k.backend}) {
			dropped[series] = true
		}
	}
	for series := range dropped {
		s.dropLocked(labels{series.Backend, series.Semaphore, series.Class})
	}
	for as := range s.classes {
		if !live(as) {
			delete(s.classes, as)
		}
	}
	if len(dropped) > 0 {
		s.series.Range(func(k, v any) bool {
			if dropped[v.(*target).series] {
				s.series.Delete(k)
			}
			return true
		})
	}
}

// countObservedLocked counts the names of observed gates that another gate is exported as.
func (s *Set) countObservedLocked(c *census) {
	for as := range s.clashed {
		if c.labels[as] {
			c.clashes[as]++
		} else {
			delete(s.clashed, as)
		}
	}
	if c.labels[rest] && s.folds[foldName].Load() > 0 {
		c.clashes[rest]++
	}
}

// dropLocked drops the series with these labels.
func (s *Set) dropLocked(k labels) {
	series := s.list[k]
	if series == nil {
		return
	}
	delete(s.list, k)
	if series.undeclared {
		series.undeclared = false
		s.undeclared--
	}
}
