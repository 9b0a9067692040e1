//go:build linux

package host_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host"
	"github.com/sema-go/sema/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]func(*proctest.Child){
		"user":      userRole,
		"timed":     timedRole,
		"chaotic":   chaoticRole,
		"member":    memberRole,
		"contender": contenderRole,
	})
	// The examples leave semaphores in the default directory.
	for _, name := range []string{"compilers", "nightly", "gpu", "builds"} {
		host.Remove("example/" + name)
	}
}

// userRole opens a semaphore and executes the commands of the parent, one per line. Each
// acquire runs in its own goroutine. Arguments: directory, name, capacity.
func userRole(c *proctest.Child) {
	capacity, err := strconv.ParseInt(c.Args[2], 10, 64)
	c.Must(err)
	sem, err := host.Open(c.Args[1], capacity, host.Dir(c.Args[0]))
	if err != nil {
		c.Send("rejected: %v", err)
		return
	}
	use(c, sem)
}

// timedRole behaves like userRole, with two or three more arguments: those of
// [host.SetTiming] and [host.SetWatchAfter].
func timedRole(c *proctest.Child) {
	capacity, err := strconv.ParseInt(c.Args[2], 10, 64)
	c.Must(err)
	sem, err := host.Open(c.Args[1], capacity, host.Dir(c.Args[0]))
	c.Must(err)
	poll, err := time.ParseDuration(c.Args[3])
	c.Must(err)
	skipAfter, err := time.ParseDuration(c.Args[4])
	c.Must(err)
	host.SetTiming(sem, poll, skipAfter)
	if len(c.Args) > 5 {
		watchAfter, err := time.ParseDuration(c.Args[5])
		c.Must(err)
		host.SetWatchAfter(sem, watchAfter)
	}
	use(c, sem)
}

func use(c *proctest.Child, sem *host.Semaphore) {
	c.Send("open")
	permits := make(chan sema.Permit, 1024)
	var joined sync.WaitGroup
	var rejected atomic.Int64
	var ctx context.Context
	var leave context.CancelFunc
	for {
		verb, arg, _ := strings.Cut(c.Receive(), " ")
		n, _ := strconv.ParseInt(arg, 10, 64)
		switch verb {
		case "acquire":
			go func() {
				p, err := sem.Acquire(context.Background(), n)
				switch {
				case errors.Is(err, sema.ErrQueueFull):
					c.Send("queue full")
					return
				case errors.Is(err, sema.ErrDraining):
					c.Send("draining")
					return
				}
				c.Must(err)
				permits <- p
				c.Send("acquired %d", n)
			}()
		case "join": // the queue, n times at once
			rejected.Store(0)
			ctx, leave = context.WithCancel(context.Background())
			for range n {
				joined.Go(func() {
					_, err := sem.Acquire(ctx, 1)
					if errors.Is(err, sema.ErrQueueFull) {
						rejected.Add(1)
					} else if !errors.Is(err, context.Canceled) {
						c.Must(fmt.Errorf("acquire: %v, want ErrQueueFull or Canceled", err))
					}
				})
			}
		case "rejected": // returns the number of rejected callers
			c.Send("%d", rejected.Load())
		case "leave":
			leave()
			joined.Wait()
			c.Send("left")
		case "within": // milliseconds
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*time.Millisecond)
				defer cancel()
				p, err := sem.Acquire(ctx, 1)
				if errors.Is(err, context.DeadlineExceeded) {
					c.Send("timed out")
					return
				}
				c.Must(err)
				permits <- p
				c.Send("acquired 1")
			}()
		case "try":
			p, err := sem.TryAcquire(context.Background(), n)
			if errors.Is(err, sema.ErrFull) {
				c.Send("full")
				continue
			}
			c.Must(err)
			permits <- p
			c.Send("acquired %d", n)
		case "release":
			(<-permits).Release()
			c.Send("released")
		case "resize":
			c.Must(sem.Resize(context.Background(), n))
			c.Send("resized")
		case "run": // runs a command that inherits a permit
			cmd := exec.Command("sleep", "60")
			if err := host.Inherit(<-permits, cmd); err != nil {
				c.Send("%v", err)
				continue
			}
			c.Must(cmd.Start())
			c.Send("%d", cmd.Process.Pid)
		}
	}
}

// memberRole tries a semaphore as another user. Arguments: directory, name,
// group.
func memberRole(c *proctest.Child) {
	sem, err := host.Open(c.Args[1], 1, host.Dir(c.Args[0]), host.ShareWithGroup(c.Args[2]))
	if err != nil {
		c.Send("%v", err)
		return
	}
	_, err = sem.TryAcquire(context.Background(), 1)
	if errors.Is(err, sema.ErrFull) {
		c.Send("full")
		return
	}
	c.Send("%v", err)
}

// asUser starts a role as user 65534 in a group.
func asUser(t *testing.T, role string, group uint32, dir, name string) *proctest.Process {
	t.Helper()
	// Other users may not be allowed to read the directory of the test's binary.
	binary, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	copyDir, err := os.MkdirTemp("", "sema-host")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(copyDir) })
	copied := filepath.Join(copyDir, "host.test")
	if err := errors.Join(os.Chmod(copyDir, 0o755), os.WriteFile(copied, binary, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, dir, name, "54321")
	cmd.Dir = copyDir
	cmd.Env = append(os.Environ(), "SEMA_PROCTEST_ROLE="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: group, NoSetGroups: false}}
	return proctest.StartCommand(t, cmd)
}

// startUser starts a process that has the semaphore open.
func startUser(t *testing.T, dir, name string, capacity int64) *proctest.Process {
	t.Helper()
	p := startUserUnchecked(t, dir, name, capacity)
	p.Expect("open")
	return p
}

// startUserWithoutPolling starts a process that waits like [openWithoutPolling].
func startUserWithoutPolling(t *testing.T, dir, name string, capacity int64) *proctest.Process {
	t.Helper()
	return startTimedUser(t, dir, name, capacity, time.Hour, time.Hour)
}

func startTimedUser(t *testing.T, dir, name string, capacity int64, poll, skipAfter time.Duration) *proctest.Process {
	t.Helper()
	p := proctest.Start(t, "timed", dir, name, strconv.FormatInt(capacity, 10), poll.String(), skipAfter.String())
	p.Expect("open")
	return p
}

// startUserUnchecked starts a process that tries to open the semaphore.
func startUserUnchecked(t *testing.T, dir, name string, capacity int64) *proctest.Process {
	t.Helper()
	return proctest.Start(t, "user", dir, name, strconv.FormatInt(capacity, 10))
}

var names atomic.Int64

// open opens a new semaphore in a new directory.
func open(t *testing.T, capacity int64, opts ...host.Option) (sem *host.Semaphore, dir, name string) {
	t.Helper()
	dir, name = t.TempDir(), fmt.Sprintf("test-%d", names.Add(1))
	return openIn(t, dir, name, capacity, opts...), dir, name
}

// openWithoutPolling opens a new semaphore whose waiters continue only when they are
// woken, and are not skipped however slow the machine is.
func openWithoutPolling(t *testing.T, capacity int64) (sem *host.Semaphore, dir, name string) {
	t.Helper()
	sem, dir, name = open(t, capacity)
	host.SetTiming(sem, time.Hour, time.Hour)
	return sem, dir, name
}

// openIn opens a semaphore in a directory and closes it at the end of the test.
func openIn(t *testing.T, dir, name string, capacity int64, opts ...host.Option) *host.Semaphore {
	t.Helper()
	sem, err := host.Open(name, capacity, append(opts, host.Dir(dir))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sem.Close() })
	return sem
}

func mustAcquire(t *testing.T, g sema.Gate, n int64) sema.Permit {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := g.Acquire(ctx, n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// acquiring starts an acquire and returns a channel that receives its permit. The
// channel is closed if the acquire fails, so that the test ends.
func acquiring(t *testing.T, g sema.Gate, n int64) <-chan sema.Permit {
	c := make(chan sema.Permit, 1)
	go func() {
		defer close(c)
		c <- mustAcquire(t, g, n)
	}()
	return c
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

// inspectStats returns the exact state, by Inspect.
func inspectStats(sem *host.Semaphore) (sema.Stats, error) {
	info, err := sem.Inspect(context.Background())
	return info.Stats, err
}

func inspectHolders(sem *host.Semaphore) ([]host.Holder, error) {
	info, err := sem.Inspect(context.Background())
	return info.Holders, err
}

// eventually waits until holds returns true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not true after a minute: %s", what)
		}
	}
}

// awaitStats waits until as many permits are in use and as many callers wait as given.
func awaitStats(t *testing.T, sem *host.Semaphore, inUse int64, waiters int) {
	t.Helper()
	var stats sema.Stats
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		var err error
		if stats, err = inspectStats(sem); err != nil {
			t.Fatal(err)
		}
		if stats.InUse == inUse && stats.Waiters == waiters {
			return
		}
	}
	t.Fatalf("%+v, want %d in use and %d waiting", stats, inUse, waiters)
}
