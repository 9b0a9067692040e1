package desk

import (
	"errors"
	"slices"
	"time"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/list"
)

// A line is who waits here for a semaphore, about in the order in which the engine
// will serve them. It need not be the engine's: many may come at the same time. It
// decides who is woken when the engine says that somebody has news, and not who.
type line struct {
	list.List[*visit]
	sorting bool          // it is about to be compared with the engine's
	took    time.Duration // to look at the engine's the last time
}

// How many of those who wait are woken by a word of the engine's, and by somebody
// who was granted something, since one word may be about several.
const (
	wokenByHint  = 2
	wokenByGrant = 1
)

// A word may be about somebody who is not woken by it. That is found out this long
// after it, and so seldom that looking takes a small part of the engine's time,
// however long the line is.
const (
	sortAfter = 30 * time.Millisecond
	sortShare = 20
)

// stand puts a visit at the end of the line.
func (d *Desk) stand(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lines[v.semaphore] == nil {
		d.lines[v.semaphore] = &line{}
	}
	d.lines[v.semaphore].PushBack(&v.place)
}

func (d *Desk) leave(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[v.semaphore]
	l.Remove(&v.place)
	if l.Len() == 0 {
		delete(d.lines, v.semaphore)
	}
}

// listen passes on what the engine says.
func (d *Desk) listen() {
	for d.life.Err() == nil {
		err := d.store.Listen(d.life, d.self.Instance, d.hinted)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		select {
		case <-d.life.Done():
		case <-time.After(jittered(time.Second)):
		}
	}
}

// hinted is told that somebody in a line has news.
func (d *Desk) hinted(semaphore string) {
	d.wake(semaphore, wokenByHint)
	d.mu.Lock()
	l := d.lines[semaphore]
	if l == nil || l.sorting || l.Len() <= wokenByHint { // who are all awake
		d.mu.Unlock()
		return
	}
	l.sorting = true
	after := max(sortAfter, sortShare*l.took)
	d.mu.Unlock()
	d.start(func() { d.sort(semaphore, l, after) })
}

// wake has the first few ask for news.
func (d *Desk) wake(semaphore string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lines[semaphore]; l != nil {
		for place := l.First(); place != nil && n > 0; place, n = place.Next(), n-1 {
			place.Of.rouse()
		}
	}
}

// rouse has a visit ask for news, unless it is about to.
func (v *visit) rouse() {
	select {
	case v.news <- struct{}{}:
	default:
	}
}

// sort gives a line the engine's order, and wakes all whose wait is over.
func (d *Desk) sort(semaphore string, l *line, after time.Duration) {
	select {
	case <-d.life.Done():
		return
	case <-time.After(after):
	}
	d.mu.Lock()
	l.sorting = false // a word that comes from now on may be about somebody who is not seen
	d.mu.Unlock()
	start := time.Now()
	snapshot, err := d.look(d.life, semaphore)
	if err != nil {
		return // all speak now and then
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.took = time.Since(start)
	l.arrange(snapshot.Queue)
}

// arrange puts those first who do not stand in the engine's line: they have news, or
// have not come there yet.
func (l *line) arrange(engine []protocol.TicketInfo) {
	places := make(map[protocol.Session]int, len(engine))
	for i, t := range engine {
		places[t.Session] = i + 1
	}
	all := slices.Collect(l.All)
	slices.SortStableFunc(all, func(a, b *visit) int { return places[a.session] - places[b.session] })
	for _, v := range all {
		l.Remove(&v.place)
		l.PushBack(&v.place)
		if places[v.session] == 0 {
			v.rouse()
		}
	}
}
