package storetest_test

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

	"github.com/sema-go/sema/internal/storetest"
)

// startEchoServer starts a server that replies to each line with its name and
// the line. The channel receives the lines that arrived.
func startEchoServer(t *testing.T, name string) (address string, received chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	received = make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					received <- lines.Text()
					c.Write([]byte(name + " " + lines.Text() + "\n"))
				}
			}()
		}
	}()
	return l.Addr().String(), received
}

// An echoClient is a client of an echo server.
type echoClient struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, address string) *echoClient {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &echoClient{t, c, bufio.NewReader(c)}
}

func (c *echoClient) send(line string) {
	c.t.Helper()
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		c.t.Fatal(err)
	}
}

// receive returns the next line, or an error if none arrives within a time.
func (c *echoClient) receive(within time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(within))
	line, err := c.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

func (c *echoClient) wantReply(line, want string) {
	c.t.Helper()
	c.send(line)
	if got, err := c.receive(time.Minute); got != want {
		c.t.Errorf("reply to %q: %q, %v, want %q", line, got, err, want)
	}
}

func (c *echoClient) wantNoReply() {
	c.t.Helper()
	if got, err := c.receive(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%q, %v, want no reply", got, err)
	}
}

func (c *echoClient) wantCut() {
	c.t.Helper()
	if got, err := c.receive(time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("%q, %v, want a closed connection", got, err)
	}
}

func wantReceived(t *testing.T, received chan string, want string) {
	t.Helper()
	select {
	case got := <-received:
		if got != want {
			t.Errorf("the server received %q, want %q", got, want)
		}
	case <-time.After(time.Minute):
		t.Errorf("the server did not receive %q", want)
	}
}

func TestProxy_ForwardsUntilCut(t *testing.T) {
	t.Parallel()
	one, _ := startEchoServer(t, "one")
	two, _ := startEchoServer(t, "two")
	p := storetest.NewProxy(t, one)
	c := dial(t, p.Address)
	c.wantReply("a", "one a")
	p.Retarget(two)
	c.wantReply("b", "one b")
	p.Cut()
	c.wantCut()
	dial(t, p.Address).wantReply("c", "two c")
}

func TestProxy_RejectsConnections(t *testing.T) {
	t.Parallel()
	server, _ := startEchoServer(t, "server")
	p := storetest.NewProxy(t, server)
	c := dial(t, p.Address)
	c.wantReply("a", "server a")
	p.SetFault(storetest.Fault{Reject: true})
	if _, err := net.Dial("tcp", p.Address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want ECONNREFUSED", err)
	}
	c.wantReply("b", "server b")
	p.Heal()
	dial(t, p.Address).wantReply("c", "server c")
}

func TestProxy_DelaysBothDirections(t *testing.T) {
	t.Parallel()
	server, _ := startEchoServer(t, "server")
	p := storetest.NewProxy(t, server)
	c := dial(t, p.Address)
	const latency = time.Second
	p.SetFault(storetest.Fault{Latency: latency})
	began := time.Now()
	for _, line := range []string{"a", "b", "c", "d"} { // all of which are in flight at once
		c.send(line)
		time.Sleep(latency / 10)
	}
	for _, want := range []string{"server a", "server b", "server c", "server d"} {
		if got, err := c.receive(time.Minute); got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		if took := time.Since(began); took < 2*latency {
			t.Errorf("%q arrived after %v, want at least %v", want, took, 2*latency)
		}
	}
	if took := time.Since(began); took > 4*latency {
		t.Errorf("all lines arrived after %v: the delays added up", took)
	}
	p.Heal()
	began = time.Now()
	c.wantReply("e", "server e")
	if took := time.Since(began); took > latency {
		t.Errorf("the reply took %v after Heal", took)
	}
}

func TestProxy_DropsRequestsAndReplies(t *testing.T) {
	t.Parallel()
	server, received := startEchoServer(t, "server")
	p := storetest.NewProxy(t, server)
	c := dial(t, p.Address)
	c.wantReply("a", "server a")
	wantReceived(t, received, "a")

	p.SetFault(storetest.Fault{LoseReplies: true})
	c.send("b")
	wantReceived(t, received, "b")
	c.wantNoReply()
	if p.Lost() != int64(len("server b\n")) {
		t.Errorf("%d bytes were lost, want %d", p.Lost(), len("server b\n"))
	}
	p.Heal()
	c.wantCut() // instead of getting what follows the gap

	p.SetFault(storetest.Fault{LoseRequests: true})
	c = dial(t, p.Address)
	c.send("c")
	c.wantNoReply()
	p.Heal()
	c.wantCut()
	dial(t, p.Address).wantReply("d", "server d")
	wantReceived(t, received, "d") // not c
}

func TestProxy_CutsReplies(t *testing.T) {
	t.Parallel()
	server, received := startEchoServer(t, "server")
	p := storetest.NewProxy(t, server)
	c := dial(t, p.Address)
	p.SetFault(storetest.Fault{CutReplies: true})
	c.wantNoReply() // as long as there is no reply
	c.send("a")
	wantReceived(t, received, "a")
	c.wantCut()
	p.Heal()
	dial(t, p.Address).wantReply("b", "server b")
}

func TestProxy_BlocksOneSource(t *testing.T) {
	t.Parallel()
	server, _ := startEchoServer(t, "server")
	p := storetest.NewSourceProxy(t, server, func(hello []byte) string {
		name, _, _ := strings.Cut(string(hello), "\r")
		return name
	})
	ann, bob := dial(t, p.Address), dial(t, p.Address)
	ann.wantReply("ann\r\n\r", "server ann")
	bob.wantReply("bob\r\n\r", "server bob")
	p.Block("ann")
	ann.receive(time.Minute) // the reply to the empty line
	ann.wantCut()
	again := dial(t, p.Address)
	again.send("ann\r\n\r")
	again.wantCut()
	bob.receive(time.Minute)
	bob.wantReply("still here", "server still here")
	p.Unblock("ann")
	dial(t, p.Address).wantReply("ann\r\n\r", "server ann")
}

// TestProxy_RejectsWhileProcessesStart starts processes meanwhile: between fork
// and exec, a child has all open files of its parent.
func TestProxy_RejectsWhileProcessesStart(t *testing.T) {
	t.Parallel()
	server, _ := startEchoServer(t, "server")
	p := storetest.NewProxy(t, server)
	var starts sync.WaitGroup
	done := make(chan struct{})
	for range 2 {
		starts.Go(func() {
			for {
				select {
				case <-done:
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
	defer close(done)
	for range 300 {
		p.SetFault(storetest.Fault{Reject: true})
		if _, err := net.Dial("tcp", p.Address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%v, want ECONNREFUSED", err)
		}
		p.Heal()
	}
}

// TestProxy_WaitsForItsAddress: a child has the listeners of its parent between
// fork and exec, so the address stays in use for a moment after they were
// closed.
func TestProxy_WaitsForItsAddress(t *testing.T) {
	t.Parallel()
	p := storetest.NewProxy(t, "127.0.0.1:1")
	p.SetFault(storetest.Fault{Reject: true})
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
	port := storetest.Port(t)
	if l, err := net.ListenPacket("udp", storetest.Loopback(port)); err == nil {
		l.Close()
		t.Errorf("another process can reserve port %d, too", port)
	}
}
