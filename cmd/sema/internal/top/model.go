package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// A model is all that there is on the screen. Methods return another one.
type model struct {
	ctx    context.Context
	from   source
	where  string // the engine, for people
	every  time.Duration
	prefix string // of what is looked for at the engine

	width, height int
	all           []semaphore // as last seen
	more          int         // semaphores that were not read yet
	looks         int         // how often all was set
	arranged      *arrangement
	seen          time.Time // when that was; zero before the first look
	now           time.Time
	failure       string // of the last look, if it failed
	said          string // what came of the last action
	saidBad       bool   // it failed

	order    order
	filter   string
	selected string // the semaphore under the cursor
	top      int    // the first line on the screen
	mode     mode
	back     mode   // where typing leads back to
	line     int    // in the details: of the holders, and then of those who wait
	lease    uint64 // which is there, so that the cursor stays with it when others come and go
	typed    string
	question *question
}

// A mode is what keys mean.
type mode uint8

const (
	listing   mode = iota
	detailing      // one semaphore is looked at
	filtering      // text is typed
	sizing         // a number is typed
)

// An order is of the list.
type order uint8

const (
	byWaiters order = iota // trouble comes first
	byUse
	byName
	orders
)

func (o order) String() string { return [...]string{"waiters", "use", "name"}[o] }

func newModel(ctx context.Context, from source, where string, every time.Duration, prefix string) model {
	return model{ctx: ctx, from: from, where: where, every: every, prefix: prefix, width: 80, height: 24, arranged: &arrangement{}}
}

// Messages besides those of keys and of the window.
type (
	tickMsg   time.Time
	lookMsg   struct{} // it is time to look
	lookedMsg struct {
		view view
		err  error
		at   time.Time
		took time.Duration
	}
	doneMsg struct { // an action is over
		what string
		err  error
	}
)

// Init is for [tea.Model].
func (m model) Init() tea.Cmd { return tea.Batch(m.look(), tick()) }

// tick has the clock go on, also while the engine does not answer.
func tick() tea.Cmd {
	return tea.Tick(time.Second, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update is for [tea.Model].
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		var next tea.Cmd
		m, next = m.press(msg)
		return m.settled(), next
	case tea.PasteMsg:
		if m.mode == filtering || m.mode == sizing {
			m.typed += printable.Line(msg.Content)
		}
		if m.mode == filtering {
			m.filter = m.typed
		}
	case tickMsg:
		m.now = time.Time(msg)
		return m, tick()
	case lookMsg:
		return m, m.look()
	case lookedMsg:
		return m.looked(msg).settled(), m.lookAgain(msg.took)
	case doneMsg:
		m.said, m.saidBad = msg.what, msg.err != nil
		if msg.err != nil {
			m.said = printable.Line(fmt.Sprintf("%s: %v", msg.what, msg.err))
		}
		return m, m.lookOnce()
	}
	return m.settled(), nil
}

// lookTime is how long a look, or an action, may take; silence is how long before
// people are told that there is no answer.
const (
	lookTime = 5 * time.Second
	silence  = 2 * time.Second
)

// silent reports whether what is on the screen is older than it should be.
func (m model) silent() bool {
	return m.failure != "" || !m.seen.IsZero() && m.now.Sub(m.seen) > 5*m.every+silence
}

func (m model) look() tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, lookTime)
		defer cancel()
		start := time.Now()
		v, err := m.from.look(ctx, m.prefix, m.selected)
		return lookedMsg{v, err, time.Now(), time.Since(start)}
	}
}

// lookOnce is a look besides the others, which is not followed by more.
func (m model) lookOnce() tea.Cmd {
	look := m.look()
	return func() tea.Msg {
		found := look().(lookedMsg)
		found.took = -1
		return found
	}
}

// lookAgain waits a while first: longer, if to look takes the engine long.
func (m model) lookAgain(took time.Duration) tea.Cmd {
	if took < 0 {
		return nil
	}
	return tea.Tick(max(m.every, 4*took), func(time.Time) tea.Msg { return lookMsg{} })
}

// looked takes in what was seen. After a failure, what was seen last stays.
func (m model) looked(msg lookedMsg) model {
	m.now = msg.at
	if msg.err != nil {
		m.failure = printable.Line(msg.err.Error())
		return m
	}
	m.failure, m.seen = "", msg.at
	m.all, m.more, m.looks = msg.view.semaphores, msg.view.more, m.looks+1
	return m
}

// An arrangement is the list as it was last sorted. Thousands of semaphores are not
// sorted again for every key.
type arrangement struct {
	looks  int
	filter string
	order  order
	rows   []semaphore
}

// shown returns the semaphores that pass the filter, in order. Callers do not change
// them.
func (m model) shown() []semaphore {
	if a := m.arranged; a.rows == nil || a.looks != m.looks || a.filter != m.filter || a.order != m.order {
		*a = arrangement{m.looks, m.filter, m.order, m.arrange()}
	}
	return m.arranged.rows
}

func (m model) arrange() []semaphore {
	filter := strings.ToLower(m.filter)
	shown := slices.DeleteFunc(slices.Clone(m.all), func(s semaphore) bool {
		return !strings.Contains(strings.ToLower(s.name), filter)
	})
	slices.SortStableFunc(shown, func(a, b semaphore) int {
		unread := cmp.Compare(min(1, len(b.failure)), min(1, len(a.failure)))
		waiters, use := cmp.Compare(b.waiting, a.waiting), cmp.Compare(b.utilisation(), a.utilisation())
		name := cmp.Compare(a.name, b.name)
		switch m.order {
		case byWaiters:
			return cmp.Or(unread, waiters, use, name)
		case byUse:
			return cmp.Or(unread, use, waiters, name)
		}
		return name
	})
	return shown
}

// utilisation is the part of the capacity that is in use; above 1 if it was made
// smaller meanwhile.
func (s semaphore) utilisation() float64 {
	switch {
	case s.effective > 0:
		return float64(s.inUse) / float64(s.effective)
	case s.inUse > 0:
		return 2
	}
	return 0
}

// chosen is the semaphore under the cursor, and where it is in the list. There is
// none if nothing is shown.
func (m model) chosen() (s semaphore, at int, ok bool) {
	shown := m.shown()
	if len(shown) == 0 {
		return s, 0, false
	}
	at = max(0, slices.IndexFunc(shown, func(s semaphore) bool { return s.name == m.selected }))
	return shown[at], at, true
}

// leaseAt is the lease on a line of the details; 0 for who waits.
func (s semaphore) leaseAt(line int) uint64 {
	if line < 0 || line >= len(s.holders) {
		return 0
	}
	return s.holders[line].lease
}

// settled has the cursor on something that is there, and the window around it.
func (m model) settled() model {
	s, at, ok := m.chosen()
	if gone := m.selected; gone != s.name && (m.mode == detailing || m.mode == sizing) {
		// Keys must not reach another one instead.
		m.mode, m.back, m.typed, m.top = listing, listing, "", 0
		m.said, m.saidBad = printable.Line(gone)+" is gone", true
	}
	if m.selected = s.name; !ok {
		m.top, m.line = 0, 0
		return m
	}
	n, cursor := len(m.shown()), at
	if m.mode == detailing {
		n = len(s.holders) + len(s.line)
		if at := slices.IndexFunc(s.holders, func(h holder) bool { return h.lease == m.lease }); at >= 0 && m.lease != 0 {
			m.line = at
		}
		m.line = max(0, min(m.line, n-1))
		m.lease = s.leaseAt(m.line)
		cursor = m.line
	}
	rows := m.rows()
	m.top = max(0, min(m.top, cursor, n-rows))
	m.top = max(m.top, cursor-rows+1)
	return m
}
