package top

import (
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sema-go/sema/cmd/sema/internal/scope"
)

func TestModel_Screens(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	s.golden("list-80x24")
	s.choose("db")
	s.press("enter")
	s.golden("detail-80x24")
	s.press("x")
	s.golden("question-80x24")
	s = newScreen(t, 132, 30)
	s.golden("list-132x30")
	s.press("/", "d", "e")
	s.golden("filter-132x30")
	s = newScreen(t, 160, 40)
	span := func(d time.Duration) *scope.Duration { return new(scope.Duration(d)) }
	for i, times := range map[int]*scope.Times{
		1: {HeadAge: span(7 * time.Second), FirstNeeds: 5, OldestHold: span(83 * time.Minute), Grants: new(12.5), WaitP99: span(1234 * time.Millisecond), HoldP99: span(4 * time.Second)},
		4: {OldestHold: span(20 * time.Second), Grants: new(2.0), HoldP99: span(time.Second)},
	} {
		s.from.page.semaphores[i].Times = times
	}
	for i := range 30 {
		s.from.page.semaphores[1].InUse = int64(i % 41) // db
		s.polled(noon)
	}
	s.choose("db")
	s.golden("split-160x40")
	s.press("?")
	s.golden("help-160x40")
	s.press("q") // any key only ends the help
	s.golden("split-160x40")
}

func TestModel_ListsProblemsFirst(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	first := func(want string) {
		t.Helper()
		if got := s.shown()[0].Name; got != want {
			t.Errorf("%s comes first, want %s", got, want)
		}
	}
	first("broken") // could not be read
	s.from.page.semaphores = s.from.page.semaphores[:8]
	s.polled(noon)
	first("payments-reconciliation-eu-central-1")
	s.press("s")
	first("payments-reconciliation-eu-central-1") // over its capacity
	s.want("USE▾")
	s.press("s")
	first("api/search")
	s.want("NAME▾")
	s.press("s")
	s.want("WAIT▾")

	s = newScreen(t, 160, 24)
	s.from.page.semaphores = s.from.page.semaphores[:8]
	s.from.page.semaphores[2].Times = &scope.Times{WaitP99: new(scope.Duration(time.Second))}
	s.from.page.semaphores[3].Times = &scope.Times{Grants: new(7.0)}
	s.polled(noon)
	s.press("s", "s", "s")
	first("deploy")
	s.want("WAIT P99▾")
	s.press("s")
	first("emails")
	s.want("GRANTS/S▾")
	s.press("s")
	s.want("WAIT▾")
}

// TestModel_CursorStays checks that the cursor stays on its semaphore when others overtake it, and on
// its holder when others are removed.
func TestModel_CursorStays(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	s.choose("db")
	s.want("▸ db ")
	s.from.page.semaphores[4].Waiting = 100 // gpu
	s.polled(noon)
	s.want("▸ db ")
	s.press("enter", "down")
	s.want("▸ pool 8 1m01s web-1/815")
	db := &s.from.page.semaphores[1]
	db.Holders = db.Holders[1:]
	s.polled(noon)
	s.want("▸ pool 8 1m01s web-1/815")
	s.press("x")
	s.want(`Revoke 8 permits of "db", held by web-1/815 for 1m01s?`)
	s.press("y")
	s.wantDone("revoke db 102")
	s.from.page.semaphores = s.from.page.semaphores[:1] // db is deleted
	s.polled(noon)
	s.want("▸ api/search", "db was deleted")
	s.press("x")
	s.want("choose a holder first")
}

func TestModel_ActionsAskWithNumbers(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	s.choose("db")
	s.press("d")
	s.want(`Drain "db"? 40 of 40 permits stay in use; 3 waiters and new acquires are rejected.`)
	s.wantDone()
	s.press("n")
	s.want("nothing was done")
	s.wantDone()
	s.press("d", "y")
	s.wantDone("drain db")
	s.want("drain db")
	s.press("r", "enter") // Enter does not confirm
	s.wantDone()
	s.press("r", "y")
	s.wantDone("resume db")

	s.press("c", "1", "2", "backspace", "5")
	s.want(`capacity of "db" (now 40): 15`)
	s.press("enter")
	s.want(`Set the capacity of "db" from 40 to 15? 40 are in use: none is granted until 26 are released.`)
	s.press("y")
	s.wantDone("resize db 15")
	s.press("c", "0", "enter")
	s.want("40 stay in use, and none is granted.")
	s.press("y", "c", "8", "0", "enter")
	s.want("from 40 to 80? 40 in use, 3 waiting.")
	s.press("y")
	s.wantDone("resize db 0", "resize db 80")
	s.press("c", "x", "enter")
	s.want("want a capacity of 0 or more; nothing was changed")
	s.press("c", "-", "1", "enter", "y")
	s.press("c", "7", "esc", "y")
	s.wantDone()

	s.press("x")
	s.want("choose a holder first")
	s.press("enter", "c", "9", "enter", "y")
	s.wantDone("resize db 9")
	s.want("PROCESS") // the details are still shown
	s.press("end", "x")
	s.want("choose a holder first") // a waiter holds nothing
	s.press("home", "tab")
	s.want("▸ #1 5 7s")
	s.press("tab")
	s.want("▸ holds 30")
	s.press("home", "x", "Y")
	s.wantDone("revoke db 101")
}

// TestModel_ShowsErrors checks that errors are shown and the screen continues to work.
func TestModel_ShowsErrors(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	s.from.err = errRejected
	s.choose("db")
	s.press("d", "y")
	s.wantDone("drain db")
	s.want("drain db: connection refused")
	s.polled(noon.Add(12 * time.Second))
	s.want("NO REPLY, as of 12s ago", "connection refused", "db")
	s.press("enter")
	s.want("batch-7/4711")
	s.from.err = nil
	s.polled(noon.Add(13 * time.Second))
	s.send(tickMsg(noon.Add(16 * time.Second)))
	s.want("12:00:16")
	s.send(tickMsg(noon.Add(25 * time.Second))) // no poll has ended in the meantime
	s.want("NO REPLY, as of 12s ago")
	s.press("esc")
	s.polled(noon.Add(26 * time.Second))
	if text := s.text(); strings.Contains(text, "NO REPLY") || strings.Contains(text, "refused") || !strings.Contains(text, "12:00:26") {
		t.Errorf("the store responds again, but the screen is\n%s", text)
	}
}

func TestModel_FilterAsYouType(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	shown := func(want int) {
		t.Helper()
		if got := len(s.shown()); got != want {
			t.Errorf("%d are shown, want %d\n%s", got, want, s.text())
		}
	}
	s.press("/", "E")
	shown(6)
	s.press("m")
	shown(1)
	s.send(tea.PasteMsg{Content: "ail\x1b"})
	s.want("/Email�")
	shown(0) // a key name in pasted text is shown, and has no effect
	s.want(`none of 9 semaphore names contains "Email�"`)
	s.press("backspace", "enter", "d")
	s.want(`Drain "emails"`)
	s.press("n", "esc")
	shown(9)
	s.press("/", "q", "ctrl+u", "enter")
	shown(9)
}

func TestModel_EscapesForeignText(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	s.from.page.semaphores[1].Name = "\x1b]0;title\adb"
	s.polled(noon)
	s.choose("\x1b]0;title\adb")
	s.press("enter", "d")
	if raw := s.draw(); strings.Contains(raw, "\x1b]0") || strings.Contains(raw, "\x1b[31mpool") || strings.Contains(raw, "\a") {
		t.Errorf("%q", raw)
	}
	s.want("�]0;title�db", "�[31mpool.go:12")
}

// TestModel_EverySize checks that the screen fits a window of any size, in any mode.
func TestModel_EverySize(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	s.choose("db")
	for _, keys := range [][]string{{}, {"enter"}, {"x"}, {"n", "esc", "/", "d"}, {"enter", "c", "1"}, {"enter"}, {"y", "G"}} {
		s.press(keys...)
		for width := 1; width < 200; width += 7 {
			for height := 1; height < 50; height += 3 {
				s.send(tea.WindowSizeMsg{Width: width, Height: height})
			}
		}
	}
}

func TestModel_LongListsScroll(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 12)
	s.from.page.semaphores = nil
	for c := 'a'; c <= 'z'; c++ {
		s.from.page.semaphores = append(s.from.page.semaphores, semaphore{State: scope.State{Name: "s-" + string(c), Capacity: 1, Effective: 1}})
	}
	s.from.page.more = 7
	s.polled(noon)
	s.want("▸ s-a", "7 not read yet")
	s.press("pgdown")
	s.want("▸ s-i")
	s.press("end")
	s.want("▸ s-z")
	s.press("up")
	s.want("▸ s-y", "s-z")
	s.press("home")
	s.want("▸ s-a")
	for range 30 {
		s.press("down")
	}
	s.want("▸ s-z")
}

func TestModel_Quit(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"q"}, {"ctrl+c"}, {"d", "ctrl+c"}, {"/", "ctrl+c"}} {
		s := newScreen(t, 80, 24)
		var last tea.Cmd
		for _, key := range keys {
			msg := tea.KeyPressMsg{Text: key, Code: []rune(key)[0]}
			if key == "ctrl+c" {
				msg = tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
			}
			last = s.send(msg)
		}
		if last == nil {
			t.Errorf("%v does not quit", keys)
		} else if _, quits := last().(tea.QuitMsg); !quits {
			t.Errorf("%v does not quit", keys)
		}
	}
	s := newScreen(t, 80, 24)
	if cmd := s.send(tea.KeyPressMsg{Text: "/", Code: '/'}); cmd != nil {
		t.Error("/ has an effect")
	}
	if cmd := s.send(tea.KeyPressMsg{Text: "q", Code: 'q'}); cmd != nil || s.typed != "q" {
		t.Error("q is not typed")
	}
}

// TestModel_PollsASlowStoreLess checks that a slow store is polled less often.
func TestModel_PollsASlowStoreLess(t *testing.T) {
	t.Parallel()
	s := newScreen(t, 80, 24)
	if s.send(polledMsg{incident(), nil, noon, 0}) == nil {
		t.Error("no further poll")
	}
	if s.send(polledMsg{incident(), nil, noon, -1}) != nil {
		t.Error("a poll after an action schedules another one")
	}
}
