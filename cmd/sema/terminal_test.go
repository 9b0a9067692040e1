//go:build linux

package main

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sema-go/sema/internal/storetest"
)

// A person is a user at a terminal, in a shell with job control.
type person struct {
	t      testing.TB
	screen *os.File
	seen   outputBuffer
	read   int // how much of seen was compared
}

func atTerminal(s shell) *person {
	s.t.Helper()
	bash := storetest.Need(s.t, "bash", "bash")
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		s.t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		s.t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i") // a line editor would lose typed-ahead input
	cmd.Env = append(os.Environ(), "SEMA_STORE="+s.store, "sema="+binary, "PS1=READY$ ", "TERM=dumb", quickly)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	p := &person{t: s.t, screen: screen}
	go func() {
		for buffer := make([]byte, 4096); ; {
			n, err := screen.Read(buffer)
			if err != nil {
				return
			}
			p.seen.Write(buffer[:n])
		}
	}()
	s.t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		screen.Close()
	})
	p.sees("READY$ ")
	return p
}

// types types keys, and waits for texts on the screen.
func (p *person) types(keys string, sees ...string) {
	p.t.Helper()
	if _, err := p.screen.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
	for _, text := range sees {
		p.sees(text)
	}
}

// sees waits for a text after those seen before.
func (p *person) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(eventTimeout); ; time.Sleep(5 * time.Millisecond) {
		all := p.seen.text()
		if at := strings.Index(all[p.read:], text); at >= 0 {
			p.read += at + len(text)
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("no %q after\n%s\nin\n%s", text, all[:p.read], all[p.read:])
		}
	}
}

// cat prints a line when it runs. The echo of its command line differs.
const cat = `sh -c 'echo be""gan; cat'`

const ctrlC, ctrlD, ctrlZ = "\x03", "\x04", "\x1a"

func TestRun_CommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	p := atTerminal(onHost(t))
	p.types("$sema run x -- "+cat+"\n", "began")
	p.types("hello\n", "hello", "hello")
	p.types(ctrlC, "READY$ ")
	p.types("echo code $?\n", "code 130", "READY$ ")
	p.types(`$sema run x -- sh -c 'read -r a b c d group e f foreground rest </proc/$$/stat; test $group = $foreground && echo in "front"'`+"\n", "in front", "READY$ ")
	p.types("$sema run x -- "+cat+" | tr a-z A-Z\n", "BEGAN") // a command in a pipeline shares the terminal
	p.types("piped\n", "piped")
	p.types(ctrlD, "PIPED", "READY$ ")
	p.types("echo code ${PIPESTATUS[0]}\n", "code 0", "READY$ ")
}

func TestRun_StoppedCommandContinues(t *testing.T) {
	t.Parallel()
	for name, pipeline := range map[string]string{"alone": "$sema run x -- " + cat, "in a pipeline": "$sema run x -- " + cat + " | cat"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := atTerminal(onHost(t))
			p.types(pipeline+"\n", "began")
			p.types("hello\n", "hello", "hello")
			p.types(ctrlZ, "Stopped", "READY$ ")
			p.types("$sema run x --no-wait -- true; echo code $?\n", "code 75", "READY$ ")
			p.types("fg\n")
			p.types("again\n", "again", "again")
			p.types(ctrlD, "READY$ ")
		})
	}
}

func TestRun_BackgroundCommandIsBroughtToTheForeground(t *testing.T) {
	t.Parallel()
	p := atTerminal(onHost(t))
	p.types("$sema run x -- "+cat+" &\n", "began")
	p.types("until jobs | grep Stopped; do sleep 0.05; done\n", "Stopped", "READY$ ")
	p.types("fg\n", "run x")
	p.types("hello\n", "hello", "hello")
	p.types(ctrlC, "READY$ ")
}

// TestRun_StoppedTooLongIsNotContinued checks that a command does not continue without its permit.
func TestRun_StoppedTooLongIsNotContinued(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := atTerminal(s)
	p.types("$sema run x -n 1 --ttl 1s -- sh -c 'echo began; while true; do echo work\"\"ing; done'\n", "began", "working")
	p.types(ctrlZ, "the permit is lost if the command is not continued", "Stopped", "READY$ ")
	s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true") // another holder had the permit in the meantime
	stopped := p.read
	p.types("fg\n", "lease lost", "READY$ ")
	if after := p.seen.text()[stopped:]; strings.Contains(after, "working") {
		t.Errorf("the command continued\n%s", after)
	}
	p.types("echo code $?\n", "code 76")
}

// TestRm_AsksAtATerminal checks that users at a terminal must confirm the removal of a semaphore in
// use.
func TestRm_AsksAtATerminal(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	holding(s, "x", "-n", "1")
	p := atTerminal(s)
	p.types("$sema rm x\n", "1 held, 0 waiting", "[y/N] ")
	p.types("n\n", "nothing was changed", "READY$ ")
	p.types("$sema rm x\n", "[y/N] ")
	p.types("y\n", "READY$ ")
	s.expect(1, nil, "show", "x")
}

// TestLs_Colours checks that colours are used only if wanted.
func TestLs_Colours(t *testing.T) {
	t.Parallel()
	s := onHost(t)
	holding(s, "x", "-n", "1")
	p := atTerminal(s)
	p.types("TERM=xterm $sema ls\n", "\x1b[31mfull\x1b[0m", "READY$ ")
	for _, plainly := range []string{"TERM=xterm NO_COLOR=1 $sema ls\n", "$sema ls\n", "TERM=xterm $sema ls | cat\n"} {
		before := p.read
		p.types(plainly, "full", "READY$ ")
		if shown := p.seen.text()[before:p.read]; strings.Contains(shown, "\x1b[31m") {
			t.Errorf("%s has colours: %q", plainly, shown)
		}
	}
}

// TestLs_FitsTheTerminal checks that a long name does not push the other columns off the screen.
func TestLs_FitsTheTerminal(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	long := "tenant-" + strings.Repeat("x", 150) + "-primary"
	s.must("run", long, "-n", "3", "--", "true")
	s.must("run", "short", "-n", "4", "--", "true")
	p := atTerminal(s)
	p.types("stty cols 60 -echo; echo re''sized\n", "resized", "READY$ ")
	p.types("$sema ls\n", "READY$ ")
	screen := p.seen.text()
	for _, want := range []string{"tenant-xxx", "…", "x-primary", "short"} {
		if !strings.Contains(screen, want) {
			t.Errorf("no %q in\n%s", want, screen)
		}
	}
	for line := range strings.SplitSeq(screen, "\n") {
		line = strings.TrimPrefix(strings.TrimRight(line, "\r"), "READY$ ")
		if len([]rune(line)) > 60 {
			t.Errorf("a line of %d columns: %s", len([]rune(line)), line)
		}
		if strings.HasPrefix(line, "short") && !strings.HasSuffix(line, "0       4         0        open") {
			t.Errorf("the columns are %q", line)
		}
	}
	// Programs get the whole name.
	if !strings.Contains(s.must("ls"), long) || !strings.Contains(s.must("ls", "-o", "json"), long) {
		t.Error("the name is cut without a terminal")
	}
}
