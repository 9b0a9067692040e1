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

	"github.com/sema-go/sema/internal/enginetest"
)

// A person is at a terminal with a shell that knows jobs.
type person struct {
	t      testing.TB
	screen *os.File
	seen   said
	read   int // of what was seen
}

func atTerminal(s shell) *person {
	s.t.Helper()
	bash := enginetest.Need(s.t, "bash", "bash")
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
	cmd := exec.Command(bash, "--norc", "--noprofile", "--noediting", "-i") // an editor would lose what is typed ahead
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

// types what is then seen on the screen, and what comes of it.
func (p *person) types(keys string, sees ...string) {
	p.t.Helper()
	if _, err := p.screen.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
	for _, text := range sees {
		p.sees(text)
	}
}

// sees waits for a text that comes after what was seen before.
func (p *person) sees(text string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		all := p.seen.text()
		if at := strings.Index(all[p.read:], text); at >= 0 {
			p.read += at + len(text)
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("there is no %q after\n%s\nbut\n%s", text, all[:p.read], all[p.read:])
		}
	}
}

// cat says that it runs. The echo of the line does not count.
const cat = `sh -c 'echo be""gan; cat'`

const ctrlC, ctrlD, ctrlZ = "\x03", "\x04", "\x1a"

func TestACommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	p := atTerminal(onHost(t))
	p.types("$sema run x -- "+cat+"\n", "began")
	p.types("hello\n", "hello", "hello")
	p.types(ctrlC, "READY$ ")
	p.types("echo code $?\n", "code 130", "READY$ ")
	p.types(`$sema run x -- sh -c 'read -r a b c d group e f foreground rest </proc/$$/stat; test $group = $foreground && echo in "front"'`+"\n", "in front", "READY$ ")
	p.types("$sema run x -- "+cat+" | tr a-z A-Z\n", "BEGAN") // one that shares the terminal with others
	p.types("piped\n", "piped")
	p.types(ctrlD, "PIPED", "READY$ ")
	p.types("echo code ${PIPESTATUS[0]}\n", "code 0", "READY$ ")
}

func TestAStoppedCommandGoesOn(t *testing.T) {
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

func TestACommandInTheBackgroundIsBroughtToTheFront(t *testing.T) {
	t.Parallel()
	p := atTerminal(onHost(t))
	p.types("$sema run x -- "+cat+" &\n", "began")
	p.types("until jobs | grep Stopped; do sleep 0.05; done\n", "Stopped", "READY$ ")
	p.types("fg\n", "run x")
	p.types("hello\n", "hello", "hello")
	p.types(ctrlC, "READY$ ")
}

// TestACommandThatWasStoppedForTooLongDoesNotGoOn without its permit.
func TestACommandThatWasStoppedForTooLongDoesNotGoOn(t *testing.T) {
	t.Parallel()
	s := onRedis(t)
	p := atTerminal(s)
	p.types("$sema run x -n 1 --ttl 1s -- sh -c 'echo began; while true; do echo work\"\"ing; done'\n", "began", "working")
	p.types(ctrlZ, "the permit is lost if it does not go on", "Stopped", "READY$ ")
	s.expect(0, nil, "run", "x", "--wait", "1m", "--", "true") // somebody else had it meanwhile
	stopped := p.read
	p.types("fg\n", "lease lost", "READY$ ")
	if after := p.seen.text()[stopped:]; strings.Contains(after, "working") {
		t.Errorf("it went on\n%s", after)
	}
	p.types("echo code $?\n", "code 76")
}

// TestAPersonIsAskedBeforePermitsAreTakenAway, where there is one.
func TestAPersonIsAskedBeforePermitsAreTakenAway(t *testing.T) {
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

// TestColoursAreForPeople who want them.
func TestColoursAreForPeople(t *testing.T) {
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

// TestLs_FitsTheTerminal: one long name must not push all other columns off the screen.
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
			t.Errorf("there is no %q in\n%s", want, screen)
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
	// For programs it is all there.
	if !strings.Contains(s.must("ls"), long) || !strings.Contains(s.must("ls", "-o", "json"), long) {
		t.Error("the name is cut where no terminal is")
	}
}
