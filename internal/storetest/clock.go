package storetest

import (
	_ "embed" // for the library
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A Clock is a wall clock that servers read instead of the system's, and that
// can be stepped. It works for programs that read the time through the C
// library: Redis and PostgreSQL, but not etcd.
type Clock struct {
	tb      TB
	library string
	file    string // contains the offset in seconds; mapped by the programs that use the clock
}

//go:embed clock/clock.c
var clockSource []byte

// NewClock returns a clock with offset 0. It compiles its library with gcc.
func NewClock(t TB) *Clock {
	t.Helper()
	compiler := Need(t, "gcc", "gcc libc6-dev")
	directory := Directory(t, "")
	c := &Clock{tb: t, library: filepath.Join(directory, "clock.so"), file: filepath.Join(directory, "ahead")}
	source := filepath.Join(directory, "clock.c")
	c.must(os.WriteFile(source, clockSource, 0o600))
	if output, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	c.must(os.Chmod(directory, 0o755)) // servers may be run by other users
	c.must(os.WriteFile(c.file, make([]byte, 8), 0o644))
	return c
}

// ClockOf returns the clock of t's servers, or a new one for servers started
// later.
func ClockOf(t TB) *Clock {
	if clocked, ok := t.(clockedTB); ok {
		return clocked.clock
	}
	return NewClock(t)
}

// Set sets the offset to ahead, in whole seconds.
func (c *Clock) Set(ahead time.Duration) {
	c.tb.Helper()
	file, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	c.must(err)
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(ahead.Seconds()))), 0)
	c.must(err)
}

// For returns a TB whose servers use the clock.
func (c *Clock) For(t TB) TB {
	if clocked, ok := t.(clockedTB); ok {
		t = clocked.TB
	}
	return clockedTB{t, c}
}

type clockedTB struct {
	TB
	clock *Clock
}

// environment returns the variables for programs that use the clock. Their
// monotonic clocks are not changed.
func (c *Clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.library, "SEMA_TEST_CLOCK=" + c.file}
}

func (c *Clock) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("set up a clock: %v", err)
	}
}
