package enginetest_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema/internal/enginetest"
)

// listen has a server that answers a line with its name and the line, and notes
// which lines it has heard.
func listen(t *testing.T, name string) (address string, heard chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	heard = make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					heard <- lines.Text()
					c.Write([]byte(name + " " + lines.Text() + "\n"))
				}
			}()
		}
	}()
	return l.Addr().String(), heard
}

// A caller is a client.
type caller struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, address string) *caller {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &caller{t, c, bufio.NewReader(c)}
}

func (c *caller) say(line string) {
	c.t.Helper()
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		c.t.Fatal(err)
	}
}

// hear is the next line, or an error if there is none within a time.
func (c *caller) hear(within time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(within))
	line, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (c *caller) wantAnswer(line, want string) {
	c.t.Helper()
	c.say(line)
	if got, err := c.hear(time.Minute); got != want {
		c.t.Errorf("%q is answered by %q, %v, want %q", line, got, err, want)
	}
}

func (c *caller) wantSilence() {
	c.t.Helper()
	if got, err := c.hear(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%q, %v, want silence", got, err)
	}
}

func (c *caller) wantCut() {
	c.t.Helper()
	if got, err := c.hear(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%q, %v, want that the connection is cut", got, err)
	}
}

func wantHeard(t *testing.T, heard chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Errorf("the server heard %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Errorf("the server did not hear %q", want)
	}
}

func TestAProxyForwardsUntilItIsCut(t *testing.T) {
	t.Parallel()
	one, _ := listen(t, "one")
	two, _ := listen(t, "two")
	p := enginetest.NewProxy(t, one)
	c := dial(t, p.Address)
	c.wantAnswer("a", "one a")
	p.Retarget(two)
	c.wantAnswer("b", "one b")
	p.Cut()
	c.wantCut()
	dial(t, p.Address).wantAnswer("c", "two c")
}

func TestAProxyRefuses(t *testing.T) {
	t.Parallel()
	server, _ := listen(t, "server")
	p := enginetest.NewProxy(t, server)
	c := dial(t, p.Address)
	c.wantAnswer("a", "server a")
	p.SetFault(enginetest.Fault{Refuse: true})
	if _, err := net.Dial("tcp", p.Address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want that the connection is refused", err)
	}
	c.wantAnswer("b", "server b")
	p.Heal()
	dial(t, p.Address).wantAnswer("c", "server c")
}

func TestAProxyIsLateEachWay(t *testing.T) {
	t.Parallel()
	server, _ := listen(t, "server")
	p := enginetest.NewProxy(t, server)
	c := dial(t, p.Address)
	const late = time.Second
	p.SetFault(enginetest.Fault{Latency: late})
	began := time.Now()
	for _, line := range []string{"a", "b", "c", "d"} { // all of which are on their way at once
		c.say(line)
		time.Sleep(late / 10)
	}
	for _, want := range []string{"server a", "server b", "server c", "server d"} {
		if got, err := c.hear(time.Minute); got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		if took := time.Since(began); took < 2*late {
			t.Errorf("%q came after %v, want %v at least", want, took, 2*late)
		}
	}
	if took := time.Since(began); took > 4*late {
		t.Errorf("all came after %v: they have waited for each other", took)
	}
	p.Heal()
	began = time.Now()
	c.wantAnswer("e", "server e")
	if took := time.Since(began); took > late {
		t.Errorf("it is late by %v after it was healed", took)
	}
}

func TestAProxyLosesWhatIsSaid(t *testing.T) {
	t.Parallel()
	server, heard := listen(t, "server")
	p := enginetest.NewProxy(t, server)
	c := dial(t, p.Address)
	c.wantAnswer("a", "server a")
	wantHeard(t, heard, "a")

	p.SetFault(enginetest.Fault{LoseReplies: true})
	c.say("b")
	wantHeard(t, heard, "b")
	c.wantSilence()
	if p.Lost() != int64(len("server b\n")) {
		t.Errorf("%d bytes were lost", p.Lost())
	}
	p.Heal()
	c.wantCut() // and not: gets what comes after the hole

	p.SetFault(enginetest.Fault{LoseRequests: true})
	c = dial(t, p.Address)
	c.say("c")
	c.wantSilence()
	p.Heal()
	c.wantCut()
	dial(t, p.Address).wantAnswer("d", "server d")
	wantHeard(t, heard, "d") // and not c
}

func TestAProxyCutsReplies(t *testing.T) {
	t.Parallel()
	server, heard := listen(t, "server")
	p := enginetest.NewProxy(t, server)
	c := dial(t, p.Address)
	p.SetFault(enginetest.Fault{CutReplies: true})
	c.wantSilence() // for as long as there is no reply
	c.say("a")
	wantHeard(t, heard, "a")
	c.wantCut()
	p.Heal()
	dial(t, p.Address).wantAnswer("b", "server b")
}

func TestAProxyTellsSourcesApart(t *testing.T) {
	t.Parallel()
	server, _ := listen(t, "server")
	p := enginetest.NewSourceProxy(t, server, func(hello []byte) string {
		name, _, _ := strings.Cut(string(hello), "\r")
		return name
	})
	ann, bob := dial(t, p.Address), dial(t, p.Address)
	ann.wantAnswer("ann\r\n\r", "server ann")
	bob.wantAnswer("bob\r\n\r", "server bob")
	p.Bar("ann")
	ann.hear(time.Minute) // the answer to the empty line
	ann.wantCut()
	again := dial(t, p.Address)
	again.say("ann\r\n\r")
	again.wantCut()
	bob.hear(time.Minute)
	bob.wantAnswer("still here", "server still here")
	p.Admit("ann")
	dial(t, p.Address).wantAnswer("ann\r\n\r", "server ann")
}

// TestAProxyRefusesWhileProcessesStart: between its fork and its program, a child
// has all that its parent has open.
func TestAProxyRefusesWhileProcessesStart(t *testing.T) {
	t.Parallel()
	server, _ := listen(t, "server")
	p := enginetest.NewProxy(t, server)
	var starts sync.WaitGroup
	over := make(chan struct{})
	for range 2 {
		starts.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := exec.Command("true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer starts.Wait()
	defer close(over)
	for range 300 {
		p.SetFault(enginetest.Fault{Refuse: true})
		if _, err := net.Dial("tcp", p.Address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%v, want that the connection is refused", err)
		}
		p.Heal()
	}
}

// A child between fork and exec has the listeners of its parent, and so has the
// address for a moment after they were closed.
func TestProxy_WaitsForItsAddress(t *testing.T) {
	t.Parallel()
	p := enginetest.NewProxy(t, "127.0.0.1:1")
	p.SetFault(enginetest.Fault{Refuse: true})
	child, err := net.Listen("tcp", p.Address)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { child.Close() })
	p.Heal()
	if _, err := net.Dial("tcp", p.Address); err != nil {
		t.Error(err)
	}
}

func TestPort_IsReservedAmongProcesses(t *testing.T) {
	t.Parallel()
	port := enginetest.Port(t)
	if l, err := net.ListenPacket("udp", enginetest.Loopback(port)); err == nil {
		l.Close()
		t.Errorf("another process can reserve port %d, too", port)
	}
}
