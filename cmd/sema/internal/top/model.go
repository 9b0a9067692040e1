package top

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/printable"
	"github.com/sema-go/sema/cmd/sema/internal/scope"
	"github.com/sema-go/sema/internal/filter"
)

// A source reads and changes semaphores. [poller] implements it.
type source interface {
	poll(ctx context.Context, prefix, selected string) (page, error)
	drain(ctx context.Context, name string, draining bool) error
	resize(ctx context.Context, name string, capacity int64) error
	revoke(ctx context.Context, name string, lease uint64) error
}

// A model is the state of the screen. Its methods return a changed copy.
type model struct {
	ctx    context.Context
	from   source
	where  string // the store, without secrets
	every  time.Duration
	prefix string // of the polled names

	width, height int
	all           []semaphore // as last polled
	more          int         // number of semaphores that were not read yet
	polls         int         // number of times that all was set
	arranged      *arrangement
	trends        map[string][]float64 // use at the last polls, by name
	seen          time.Time            // time of the last successful poll; zero before the first
	now           time.Time
	failure       string // error of the last poll; "": it succeeded
	result        string // the result of the last action
	resultFailed  bool   // the action failed

	order    order
	filter   string
	selected string // the semaphore under the cursor
	top      int    // first row on the screen
	mode     mode
	back     mode   // the mode after typing
	cursor   int    // in the details: row of a holder, or of a waiter after the holders
	lease    uint64 // lease in that row, so that the cursor stays on it when other rows change
	typed    string
	question *question
	helping  bool // the help is shown
}

// A mode determines the meaning of keys.
type mode uint8

const (
	listing   mode = iota
	detailing      // one semaphore is shown
	filtering      // a filter is typed
	sizing         // a capacity is typed
)

// An order is the sort order of the list.
type order uint8

const (
	byWaiters order = iota
	byUse
	byName
	byWaitP99 // the last ones only on wide terminals, which show these columns
	byGrants
	orders
)

// nextOrder returns the order after the present one.
func (m model) nextOrder() order {
	if next := m.order + 1; next < byWaitP99 || m.wide() && next < orders {
		return next
	}
	return 0
}

func newModel(ctx context.Context, from source, where string, every time.Duration, prefix string) model {
	return model{ctx: ctx, from: from, where: where, every: every, prefix: prefix, width: 80, height: 24, arranged: &arrangement{}}
}

// Messages besides those for keys and the window.
type (
	tickMsg   time.Time
	pollMsg   struct{} // a poll is due
	polledMsg struct {
		page page
		err  error
		at   time.Time
		took time.Duration // negative: no further poll follows
	}
	doneMsg struct { // an action has ended
		what string
		err  error
	}
)

// Init implements [tea.Model].
func (m model) Init() tea.Cmd { return tea.Batch(m.poll(), tick()) }

// tick updates the clock, also while the store does not respond.
func tick() tea.Cmd {
	return tea.Tick(time.Second, func(now time.Time) tea.Msg { return tickMsg(now) })
}

// Update implements [tea.Model].
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
	case pollMsg:
		return m, m.poll()
	case polledMsg:
		return m.polled(msg).settled(), m.pollAgain(msg.took)
	case doneMsg:
		m.result, m.resultFailed = msg.what, msg.err != nil
		if msg.err != nil {
			m.result = printable.Line(fmt.Sprintf("%s: %s", msg.what, explain.Text(msg.err)))
		}
		return m, m.pollOnce()
	}
	return m.settled(), nil
}

const (
	// requestTimeout bounds a poll, or an action.
	requestTimeout = 5 * time.Second
	// staleAfter is how late a poll may be before the screen shows that.
	staleAfter = 2 * time.Second
)

// stale reports whether the screen is older than expected.
func (m model) stale() bool {
	return m.failure != "" || !m.seen.IsZero() && m.now.Sub(m.seen) > 5*m.every+staleAfter
}

func (m model) poll() tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, requestTimeout)
		defer cancel()
		start := time.Now()
		result, err := m.from.poll(ctx, m.prefix, m.selected)
		return polledMsg{result, err, time.Now(), time.Since(start)}
	}
}

// pollOnce polls in addition to the regular polls.
func (m model) pollOnce() tea.Cmd {
	poll := m.poll()
	return func() tea.Msg {
		result := poll().(polledMsg)
		result.took = -1
		return result
	}
}

// pollAgain schedules the next poll. A slow store is polled less often.
func (m model) pollAgain(took time.Duration) tea.Cmd {
	if took < 0 {
		return nil
	}
	return tea.Tick(max(m.every, 4*took), func(time.Time) tea.Msg { return pollMsg{} })
}

// polled stores the result of a poll. After a failure, the last result stays.
func (m model) polled(msg polledMsg) model {
	m.now = msg.at
	if msg.err != nil {
		m.failure = printable.Line(explain.Text(msg.err))
		return m
	}
	m.failure, m.seen = "", msg.at
	m.all, m.more, m.polls = msg.page.semaphores, msg.page.more, m.polls+1
	m.trends = m.trended()
	return m
}

// An arrangement caches the sorted list: thousands of semaphores are not sorted again for every
// key.
type arrangement struct {
	polls  int
	filter string
	order  order
	rows   []semaphore
}

// shown returns the semaphores that match the filter, in order. Callers must not modify them.
func (m model) shown() []semaphore {
	if a := m.arranged; a.rows == nil || a.polls != m.polls || a.filter != m.filter || a.order != m.order {
		*a = arrangement{m.polls, m.filter, m.order, m.arrange()}
	}
	return m.arranged.rows
}

func (m model) arrange() []semaphore {
	wanted, err := filter.Parse(m.filter)
	if err != nil {
		return []semaphore{} // the list shows the error
	}
	shown := slices.DeleteFunc(slices.Clone(m.all), func(s semaphore) bool { return !wanted.Matches(s.subject()) })
	slices.SortStableFunc(shown, func(a, b semaphore) int {
		unread := cmp.Compare(min(1, len(b.failure)), min(1, len(a.failure)))
		waiters, use := cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.utilisation(), a.utilisation())
		name := cmp.Compare(a.Name, b.Name)
		switch m.order {
		case byWaiters:
			return cmp.Or(unread, waiters, use, name)
		case byUse:
			return cmp.Or(unread, use, waiters, name)
		case byWaitP99:
			return cmp.Or(unread, cmp.Compare(b.waitP99(), a.waitP99()), waiters, name)
		case byGrants:
			return cmp.Or(unread, cmp.Compare(b.grants(), a.grants()), waiters, name)
		}
		return name
	})
	return shown
}

// subject returns what filters compare. A semaphore that could not be read has only a name and a problem.
func (s semaphore) subject() filter.Subject {
	if s.failure != "" {
		return filter.Subject{Name: strings.ToLower(s.Name), Problem: true}
	}
	of := filter.Subject{
		Name: strings.ToLower(s.Name), Full: s.InUse >= s.Effective, Waiting: s.Waiting > 0, Draining: s.Draining, Paused: s.Capacity == 0,
		Idle: s.InUse == 0 && s.Waiting == 0, Rate: s.Window > 0, Declared: s.Declared, Problem: s.hasProblem(),
	}
	if t := s.Times; t != nil && t.HeadAge != nil {
		of.Wait = time.Duration(*t.HeadAge)
	}
	if t := s.Times; t != nil && t.OldestHold != nil {
		of.Held = time.Duration(*t.OldestHold)
	}
	return of
}

// utilisation returns the fraction of the capacity that is in use; above 1 after a shrink.
func (s semaphore) utilisation() float64 {
	switch {
	case s.Effective > 0:
		return float64(s.InUse) / float64(s.Effective)
	case s.InUse > 0:
		return 2
	}
	return 0
}

// chosen returns the semaphore under the cursor, and its index in the list. ok is false if the
// list is empty.
func (m model) chosen() (s semaphore, at int, ok bool) {
	shown := m.shown()
	if len(shown) == 0 {
		return s, 0, false
	}
	at = max(0, slices.IndexFunc(shown, func(s semaphore) bool { return s.Name == m.selected }))
	return shown[at], at, true
}

// leaseAt returns the lease in a row of the details; 0 for a waiter.
func (s semaphore) leaseAt(row int) uint64 {
	if row < 0 || row >= len(s.Holders) {
		return 0
	}
	return s.Holders[row].Lease
}

// settled moves the cursor to an existing row, and scrolls the list to the cursor.
func (m model) settled() model {
	s, at, ok := m.chosen()
	if gone := m.selected; gone != s.Name && (m.mode == detailing || m.mode == sizing) {
		// Keys must not act on another semaphore.
		m.mode, m.back, m.typed, m.top = listing, listing, "", 0
		m.result, m.resultFailed = printable.Line(gone)+" was deleted", true
	}
	if m.selected = s.Name; !ok {
		m.top, m.cursor = 0, 0
		return m
	}
	n, cursor := len(m.shown()), at
	if m.mode == detailing {
		n = len(s.Holders) + len(s.Waiters)
		if at := slices.IndexFunc(s.Holders, func(h scope.Participant) bool { return h.Lease == m.lease }); at >= 0 && m.lease != 0 {
			m.cursor = at
		}
		m.cursor = max(0, min(m.cursor, n-1))
		m.lease = s.leaseAt(m.cursor)
		cursor = m.cursor
	}
	rows := m.rows()
	m.top = max(0, min(m.top, cursor, n-rows))
	m.top = max(m.top, cursor-rows+1)
	return m
}
