//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/sema-go/sema/host/posix"
	"github.com/sema-go/sema/internal/proctest"
)

// A peer is a program in another language that executes commands.
type peer struct {
	*proctest.Process
	t testing.TB
}

// do sends a command and checks its reply.
func (p peer) do(want, format string, args ...any) {
	p.t.Helper()
	p.Send(format, args...)
	if got := p.Receive(); got != want {
		p.t.Fatalf("%s: %q, want %q", fmt.Sprintf(format, args...), got, want)
	}
}

func TestSemaphore_Glibc(t *testing.T) {
	t.Parallel()
	program := proctest.CompileC(t, "testdata/peer.c")
	for what, test := range map[string]func(*testing.T, func() peer){
		"opens what Go created":               glibcOpensWhatGoCreated,
		"creates what Go opens":               glibcCreatesWhatGoOpens,
		"agrees on names":                     glibcAgreesOnNames,
		"wakes Go and is woken":               glibcWakesGoAndIsWoken,
		"posts from a signal handler":         glibcPostsFromASignalHandler,
		"exchanges permits with Go":           glibcExchangesPermitsWithGo,
		"excludes and is excluded under load": glibcExcludesUnderLoad,
		"shares a semaphore without a name":   glibcSharesASemaphoreWithoutAName,
		"is woken when a Go waiter leaves":    glibcIsWokenWhenGoWaiterLeaves,
		"killed while woken":                  glibcKilledWhileWoken,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			test(t, func() peer { return peer{proctest.StartCommand(t, exec.Command(program)), t} })
		})
	}
}

func glibcOpensWhatGoCreated(t *testing.T, start func() peer) {
	s := create(t, 3)
	c := start()
	c.do("ok", "open %s", s.Name())
	c.do("3", "value")
	c.do("ok", "wait")
	wantState(t, s, 2, 0)
	s.TryWait()
	c.do("1", "value")
	c.do("EEXIST", "exclusive %s 1", s.Name())
	c.do("ok", "unlink %s", s.Name())
	wantErr(t, posix.Unlink(s.Name()), fs.ErrNotExist)

	full := create(t, posix.MaxValue)
	c.do("ok", "open %s", full.Name())
	c.do("EOVERFLOW", "post")
	c.do("2147483647", "value")
}

func glibcCreatesWhatGoOpens(t *testing.T, start func() peer) {
	name := uniqueName(t)
	c := start()
	c.do("ENOENT", "open %s", name)
	c.do("ok", "exclusive %s 4", name)
	_, err := posix.Create(name, 0o600, 1, true)
	wantErr(t, err, fs.ErrExist)
	s, err := posix.Open(name)
	wantErr(t, err, nil)
	wantState(t, s, 4, 0)
	s.Wait(t.Context())
	c.do("3", "value")
	if i := listed(t, name); i == nil || i.Value != 3 || i.Err != nil {
		t.Errorf("listed as %+v", i)
	}
	wantErr(t, posix.Unlink(name), nil)
	c.do("ENOENT", "unlink %s", name)
	c.do("ok", "post")
	wantState(t, s, 4, 0)
}

func glibcAgreesOnNames(t *testing.T, start func() peer) {
	c := start()
	unique := uniqueName(t)[1:]
	for _, name := range []string{
		unique, "/" + unique, "///" + unique, "." + unique, ".." + unique, unique + "/x", "/x/" + unique, "/", "//", unique + "/",
		unique + strings.Repeat("x", 251-len(unique)), unique + strings.Repeat("x", 252-len(unique)), unique + strings.Repeat("x", 300-len(unique)),
	} {
		c.Send("create %s 1", name)
		accepted := c.Receive() == "ok"
		s, err := posix.Create(name, 0o600, 1, false)
		if (err == nil) != accepted {
			t.Errorf("%q: accepted by glibc: %t, Create: %v", name, accepted, err)
		}
		if err == nil {
			c.do("ok", "post")
			wantState(t, s, 2, 0)
			wantErr(t, posix.Unlink(name), nil)
		}
	}
}

func glibcWakesGoAndIsWoken(t *testing.T, start func() peer) {
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		s := create(t, 0)
		prepare(s)
		c := start()
		c.do("ok", "open %s", s.Name())
		for range 20 {
			served := startWait(t.Context(), s)
			awaitSleepers(t, s, 1)
			c.do("ok", "post")
			wantErr(t, result(t, served), nil)

			c.Send("wait")
			awaitSleepers(t, s, 1)
			wantErr(t, s.Post(), nil)
			c.Expect("ok")
		}
		c.do("EAGAIN", "try")
		c.do("ETIMEDOUT", "timedwait 1")
		wantState(t, s, 0, 0)
	})
}

func glibcPostsFromASignalHandler(t *testing.T, start func() peer) {
	s := create(t, 0)
	c := start()
	c.do("ok", "open %s", s.Name())
	c.do("ok", "post on signal")
	served := startWait(t.Context(), s)
	awaitSleepers(t, s, 1)
	c.Signal(syscall.SIGUSR1)
	wantErr(t, result(t, served), nil)

	c.Send("wait") // interrupted by a signal whose handler posts
	awaitSleepers(t, s, 1)
	c.Signal(syscall.SIGUSR1)
	c.Expect("ok")
	wantState(t, s, 0, 0)
}

func glibcExchangesPermitsWithGo(t *testing.T, start func() peer) {
	const rounds = 500
	there, back := create(t, 0), create(t, 0)
	c := start()
	c.do("ok", "open %s", there.Name())
	c.Send("echo %s %d", back.Name(), rounds)
	for range rounds {
		wantErr(t, there.Post(), nil)
		wantErr(t, result(t, startWait(t.Context(), back)), nil)
	}
	c.Expect("ok")
	wantState(t, there, 0, 0)
	wantState(t, back, 0, 0)
}

// A section is the struct section of peer.c.
type section struct{ inside, exceeded, visits atomic.Int64 }

func glibcExcludesUnderLoad(t *testing.T, start func() peer) {
	bothWays(t, func(t *testing.T, prepare func(...*posix.Semaphore)) {
		const capacity, rounds, peers, goroutines = 3, 1500, 2, 6
		s := create(t, capacity)
		prepare(s)
		path, page := sharedPage(t)
		shared := (*section)(unsafe.Pointer(&page[0]))
		var all []peer
		for range peers {
			c := start()
			c.do("ok", "open %s", s.Name())
			c.Send("visit %s %d %d", path, rounds, capacity)
			all = append(all, c)
		}
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				for done := 0; done < rounds; {
					ctx, cancel := context.Background(), context.CancelFunc(func() {})
					if i%2 == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(100*(i+1))*time.Microsecond)
					}
					err := s.Wait(ctx)
					cancel()
					if errors.Is(err, context.DeadlineExceeded) {
						continue
					}
					if shared.inside.Add(1) > capacity {
						shared.exceeded.Add(1)
					}
					shared.visits.Add(1)
					shared.inside.Add(-1)
					s.Post()
					done++
				}
			})
		}
		wg.Wait()
		for _, c := range all {
			c.Expect("ok")
		}
		if n := shared.exceeded.Load(); n != 0 {
			t.Errorf("the capacity was exceeded %d times", n)
		}
		if n := shared.visits.Load(); n != (goroutines+2*peers)*rounds {
			t.Errorf("%d visits, want %d", n, (goroutines+2*peers)*rounds)
		}
		wantState(t, s, capacity, 0)
	})
}

func glibcSharesASemaphoreWithoutAName(t *testing.T, start func() peer) {
	path, page := sharedPage(t)
	c := start()
	c.do("ok", "init %s 2", path)
	theirs, err := posix.Attach(page)
	wantErr(t, err, nil)
	wantState(t, theirs, 2, 0)
	wantErr(t, theirs.Wait(t.Context()), nil)
	c.do("1", "value")

	path, page = sharedPage(t)
	ours, err := posix.Init(page, 0)
	wantErr(t, err, nil)
	c.do("ok", "attach %s", path)
	c.do("0", "value")
	c.Send("wait")
	awaitSleepers(t, ours, 1)
	ours.Post()
	c.Expect("ok")
	served := startWait(t.Context(), ours)
	awaitSleepers(t, ours, 1)
	c.do("ok", "post")
	wantErr(t, result(t, served), nil)
	wantState(t, ours, 0, 0)
}

// glibcIsWokenWhenGoWaiterLeaves posts while a Go waiter that slept first is leaving.
func glibcIsWokenWhenGoWaiterLeaves(t *testing.T, start func() peer) {
	s := create(t, 0)
	c := start()
	c.do("ok", "open %s", s.Name())
	for round := range 150 {
		ctx, cancel := context.WithCancel(t.Context())
		left := startWait(ctx, s)
		awaitSleepers(t, s, 1)
		c.Send("wait")
		awaitSleepers(t, s, 2)
		if round%2 == 0 {
			go cancel()
		} else {
			cancel()
		}
		s.Post()
		if result(t, left) == nil {
			s.Post()
		}
		c.Expect("ok")
		cancel()
		wantState(t, s, 0, 0)
	}
}

// glibcKilledWhileWoken checks the lost wake-up that no live process can correct, and
// Repair. The sleeping process is in C too: in a Go program a stray signal would make
// the waiter check the value.
func glibcKilledWhileWoken(t *testing.T, start func() peer) {
	s := create(t, 0)
	killed, sleeping := start(), start()
	killed.do("ok", "open %s", s.Name())
	sleeping.do("ok", "open %s", s.Name())
	killed.Send("sleep only")
	awaitSleepers(t, s, 1)
	sleeping.Send("wait")
	awaitSleepers(t, s, 2)
	wantErr(t, s.Post(), nil)
	killed.Expect("woken")
	killed.End()
	wantState(t, s, 1, 2) // one killed, one asleep although a permit is free
	was, err := s.Repair(1)
	if was != 1 || err != nil {
		t.Errorf("was %d, error %v", was, err)
	}
	sleeping.Expect("ok")
	wantState(t, s, 0, 1) // the killed process stays counted

	served := startWait(t.Context(), s)
	awaitSleepers(t, s, 1)
	wantErr(t, s.Post(), nil) // the killed process does no harm
	wantErr(t, result(t, served), nil)
}

func hold(c *proctest.Child) {
	s, err := posix.Open(c.Args[0])
	c.Must(err)
	c.Must(s.Wait(context.Background()))
	c.Send("held")
	c.Receive()
}

func post(c *proctest.Child) {
	s, err := posix.Open(c.Args[0])
	c.Must(err)
	c.Must(s.Post())
	c.Send("posted")
	c.Receive()
}

func TestSemaphore_KilledHolderLosesThePermitUntilRepair(t *testing.T) {
	t.Parallel()
	s := create(t, 1)
	child := proctest.Start(t, "hold", s.Name())
	child.Expect("held")
	sleeping := startWait(t.Context(), s)
	awaitSleepers(t, s, 1)
	child.End()
	wantState(t, s, 0, 1)
	was, err := s.Repair(1)
	if was != 0 || err != nil {
		t.Errorf("was %d, error %v", was, err)
	}
	wantErr(t, result(t, sleeping), nil)
	wantState(t, s, 0, 0)
}
