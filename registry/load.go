package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sema-go/sema"
)

// fileState is what is known about the file.
type fileState struct {
	path   string // of the file in force; "": none was loaded
	digest [sha256.Size]byte
	loaded time.Time

	rejected     string // path of the last file, if it was rejected
	err          error  // why; nil: it was not
	rejectedFrom time.Time
}

// Load reads a file and applies it: each limit gets what the file sets, or what the program
// asked for if an earlier file had set it and this one does not. The format is described in
// docs/registry.md:
//
//	{"limits": {
//		"db":   {"capacity": 20, "why": "half of them are on fire, until Monday"},
//		"mail": {"capacity": 100, "window": "1s"},
//		"api":  {"capacity": 64, "classes": {"paid": {"weight": 3}}}
//	}}
//
// Load changes everything or nothing. If the file has problems, a [LoadError] lists all of
// them. Names must be registered or expected ([Registry.Expect]), so call Load after the
// program has registered its limits.
//
// Gates of a host or a fleet are changed first, for all their users; they keep what was set
// when a later file does not set them. If one of these changes fails, those already done are
// reverted. Load waits for them for at most 10 s, and as long again to revert.
//
// Load is for the start of a program. [Registry.Watch] applies later changes.
func (r *Registry) Load(path string) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	data, err := readFile(path)
	if err != nil {
		return r.reject(path, unreadable(path, err))
	}
	p, fault := r.prepare(path, data)
	if fault == nil {
		_, fault = r.apply(p)
	}
	if fault != nil {
		return r.reject(path, fault)
	}
	return nil
}

// unreadable returns the error for a file that could not be read.
func unreadable(path string, err error) *LoadError {
	text := strings.TrimPrefix(err.Error(), path+" ")
	return &LoadError{Path: path, Problems: []Problem{{Text: text, Err: err}}}
}

// reject records that a file was rejected, and returns err.
func (r *Registry) reject(path string, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.file.err == nil || r.file.rejected != path {
		r.file.rejectedFrom = time.Now()
	}
	r.file.rejected, r.file.err = path, err
	return err
}

// A plan is a file that can be applied.
type plan struct {
	path     string
	report   *report
	settings map[string]*setting
}

// prepare returns a plan, or all problems of the file. It changes nothing.
func (r *Registry) prepare(path string, data []byte) (*plan, *LoadError) {
	settings, report := parse(data)
	r.mu.Lock()
	known := make(map[string]*entry, len(settings))
	var unknown []*setting
	for name, s := range settings {
		if e := r.entries[name]; e != nil {
			known[name] = e
		} else if !r.expectsLocked(name) {
			unknown = append(unknown, s)
		}
	}
	var left []*entry // set until now, and no longer
	for name := range r.settings {
		if e := r.entries[name]; e != nil && known[name] == nil {
			left = append(left, e)
		}
	}
	names := make([]string, 0, len(r.entries))
	for name := range r.entries {
		names = append(names, name)
	}
	guard := r.options.maxChange > 0 && r.file.path != ""
	r.mu.Unlock()

	slices.SortFunc(unknown, func(a, b *setting) int { return cmp.Compare(a.at[""], b.at[""]) })
	slices.Sort(names)
	for i, s := range unknown {
		advice := ""
		if i < maxListed {
			advice = ": " + nearest(s.name, names)
		}
		report.add(s.at[""], "%q: no such limit%s", s.name, advice)
	}
	for name, e := range known {
		for _, m := range e.misfits(settings[name]) {
			report.add(settings[name].at[m.key], "%q: %s", name, m.text)
		}
	}
	if guard {
		for name, e := range known {
			r.guard(report, e, settings[name], settings[name].at["capacity"])
		}
		for _, e := range left {
			r.guard(report, e, nil, -1)
		}
	}
	return &plan{path, report, settings}, report.err(path)
}

// A misfit is a key of a setting that a gate cannot have.
type misfit struct{ key, text string }

// misfits returns what in a setting does not fit the gate.
func (e *entry) misfits(s *setting) (list []misfit) {
	add := func(wrong bool, key, format string, args ...any) {
		if wrong {
			list = append(list, misfit{key, fmt.Sprintf(format, args...)})
		}
	}
	g := &e.gate
	_, hasCapacity := s.at["capacity"]
	_, hasWindow := s.at["window"]
	if g.rate != nil {
		add(hasCapacity != hasWindow, "", "a rate is set by capacity and window together")
		add(s.capacity != nil && *s.capacity == 0, "capacity", "capacity is 0: want at least 1 for a rate, which cannot be paused by a file")
	} else {
		add(hasWindow, "window", "window is set, but a %s has no rate", g.kind)
		add(hasCapacity && !g.resizes(), "capacity", "capacity is set, but that of a %s is fixed", g.kind)
	}
	add(s.classes != nil && g.classes == nil, "classes", "classes are set, but a %s has none", g.kind)
	return list
}

// guard reports a change that exceeds the option MaxChange.
func (r *Registry) guard(report *report, e *entry, s *setting, at int) {
	to, ok := s.value()
	if !ok {
		to = e.initial
	}
	from := e.gate.current()
	if e.gate.shared != nil && !ok || from.Capacity == 0 || to.Capacity == 0 || (to.Window > 0) != (e.gate.rate != nil) {
		return
	}
	change := perSecond(to) / perSecond(from)
	if most := r.options.maxChange; change > most || change < 1/most {
		report.add(at, "%q: from %v to %v is a change by more than a factor of %v: go in steps, or restart the program", e.name, from, to, most)
	}
}

// perSecond returns a rate in permits per second, and the capacity of other values.
func perSecond(v Value) float64 {
	if v.Window == 0 {
		return float64(v.Capacity)
	}
	return float64(v.Capacity) / v.Window.Seconds()
}

// nearest returns advice about a name that is not registered. names are those that are.
func nearest(name string, names []string) string {
	const most = 10
	for _, other := range names {
		if distance(name, other) <= 1+min(len(name), len(other))/4 {
			return fmt.Sprintf("did you mean %q?", other)
		}
	}
	switch {
	case len(names) == 0:
		return "none is registered yet; register limits before Load, or declare them with Expect"
	case len(names) > most:
		return fmt.Sprintf("registered are %q and %d more", names[:most], len(names)-most)
	}
	return fmt.Sprintf("registered are %q", names)
}

// distance returns the number of bytes to insert, delete or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// apply changes the gates, and returns what changed. If a shared gate fails, it reverts
// the others and returns the problems. The caller holds r.loading.
func (r *Registry) apply(p *plan) (changes []string, fault *LoadError) {
	ctx, cancel := bounded()
	defer cancel()
	var undo []func(context.Context) error
	for _, e := range r.sharedOf(p.settings) {
		change, revert, err := e.store(ctx, p.settings[e.name])
		if revert != nil {
			undo = append(undo, revert)
		}
		if err != nil {
			p.report.fail(p.settings[e.name].at["capacity"], err, "%q: %v", e.name, err)
			p.revert(undo)
			return nil, p.report.err(p.path)
		}
		changes = append(changes, change...)
	}

	r.mu.Lock()
	digest, old := sha256.Sum256(p.report.data), r.settings
	r.settings = p.settings
	r.file = fileState{path: p.path, digest: digest, loaded: time.Now()}
	var touched []*entry // registered meanwhile, too
	for name, e := range r.entries {
		if p.settings[name] != nil || old[name] != nil {
			touched = append(touched, e)
		}
	}
	r.mu.Unlock()
	for _, e := range touched {
		changes = append(changes, r.settle(ctx, e)...)
	}
	slices.Sort(changes)
	return changes, nil
}

// sharedOf returns the shared gates that the settings change, sorted by name.
func (r *Registry) sharedOf(settings map[string]*setting) (list []*entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range settings {
		if e := r.entries[name]; e != nil && e.gate.shared != nil && s.capacity != nil {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int { return strings.Compare(a.name, b.name) })
	return list
}

// revert reverts changes, the last first, and reports what fails.
func (p *plan) revert(undo []func(context.Context) error) {
	ctx, cancel := bounded()
	defer cancel()
	for _, revert := range slices.Backward(undo) {
		if err := revert(ctx); err != nil {
			p.report.fail(-1, err, "%v", err)
		}
	}
}

// store sets the capacity of a shared gate. revert, if it is not nil, restores the one
// before. A change that failed is reverted too: the store may have made it.
func (e *entry) store(ctx context.Context, s *setting) (changes []string, revert func(context.Context) error, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	from, before := e.gate.current(), e.applied
	to, _ := s.value()
	if last, ok := before.value(); ok && last == to && from == to {
		e.applied = s
		return nil, nil, nil
	}
	if from.Capacity > 0 { // otherwise the gate is paused, or has not been in contact with its store
		revert = func(ctx context.Context) error {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.applied = before
			if err := e.gate.shared.Resize(ctx, from.Capacity); err != nil {
				return fmt.Errorf("%q: revert to %v failed: %w", e.name, from, err)
			}
			return nil
		}
	}
	if err := e.gate.shared.Resize(ctx, to.Capacity); err != nil {
		return nil, revert, err
	}
	e.applied = s
	return e.changeText(from, to), revert, nil
}

// settle makes the gate what the loaded file sets, whichever file that is by now, and
// returns what changed. A problem is recorded, and logged if the limit had none. It is
// called without r.mu, because gates call observers.
func (r *Registry) settle(ctx context.Context, e *entry) (changes []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r.mu.Lock()
	want, registered := r.settings[e.name], r.entries[e.name] == e
	r.mu.Unlock()
	if !registered {
		return nil
	}
	var err error
	if want != e.applied {
		changes, err = e.becomeLocked(ctx, want)
	}
	r.mu.Lock()
	first := e.problem == nil
	e.problem = err
	r.mu.Unlock()
	if err != nil && first {
		r.options.log().Error("registry: the setting of a file is not in force", "limit", e.name, "error", err, "hint", sema.Hint(err))
	}
	return changes
}

// retry settles the gates whose settings are not in force. The caller holds r.loading.
func (r *Registry) retry() {
	r.mu.Lock()
	var failed []*entry
	for _, e := range r.entries {
		if e.problem != nil {
			failed = append(failed, e)
		}
	}
	r.mu.Unlock()
	ctx, cancel := bounded()
	defer cancel()
	for _, e := range failed {
		r.settle(ctx, e)
	}
}

// becomeLocked changes the gate to what a setting asks for; nil: to what the program asked
// for.
func (e *entry) becomeLocked(ctx context.Context, want *setting) (changes []string, err error) {
	if want != nil {
		if list := e.misfits(want); len(list) > 0 {
			return nil, fmt.Errorf("registry: %q: %s: %w", e.name, list[0].text, sema.ErrInvalid)
		}
	}
	from := e.gate.current()
	to, set := want.value()
	if _, was := e.applied.value(); was && !set {
		to, set = e.initial, e.gate.shared == nil
	}
	switch {
	case !set:
		to = from
	case e.gate.shared != nil:
		if err := e.gate.shared.Resize(ctx, to.Capacity); err != nil {
			return nil, err
		}
	case from != to:
		e.gate.change(to)
	}
	if e.gate.classes != nil {
		e.gate.changeShares(e.shares, e.applied.shares(), want.shares())
	}
	e.applied = want
	return e.changeText(from, to), nil
}

// changeText returns a change in words, or nothing if from and to are the same.
func (e *entry) changeText(from, to Value) []string {
	if from == to {
		return nil
	}
	return []string{fmt.Sprintf("%s: %v → %v", e.name, from, to)}
}
