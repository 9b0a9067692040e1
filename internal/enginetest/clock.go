package enginetest

import (
	_ "embed" // for the library
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A Clock is a wall clock that some servers go by, and that can be stepped. It is
// for programs that ask the C library for the time: Redis and PostgreSQL, not
// etcd.
type Clock struct {
	tb      TB
	library string
	file    string // has how many seconds it is ahead, and is mapped by who goes by it
}

//go:embed clock/clock.c
var clockSource []byte

// NewClock makes one that is right. It is compiled by gcc.
func NewClock(t TB) *Clock {
	t.Helper()
	compiler := Need(t, "gcc", "gcc libc6-dev")
	directory := Directory(t, "")
	c := &Clock{tb: t, library: filepath.Join(directory, "clock.so"), file: filepath.Join(directory, "ahead")}
	source := filepath.Join(directory, "clock.c")
	c.must(os.WriteFile(source, clockSource, 0o600))
	if said, err := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-o", c.library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	c.must(os.Chmod(directory, 0o755)) // servers may be run by other users
	c.must(os.WriteFile(c.file, make([]byte, 8), 0o644))
	return c
}

// ClockOf is the clock of t's servers, or a new one for some that are still to come.
func ClockOf(t TB) *Clock {
	if by, ok := t.(timed); ok {
		return by.clock
	}
	return NewClock(t)
}

// Set has it be that much ahead.
func (c *Clock) Set(ahead time.Duration) {
	c.tb.Helper()
	file, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	c.must(err)
	defer file.Close()
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(int64(ahead.Seconds()))), 0)
	c.must(err)
}

// For has the servers that are started with it go by the clock.
func (c *Clock) For(t TB) TB {
	if by, ok := t.(timed); ok {
		t = by.TB
	}
	return timed{t, c}
}

type timed struct {
	TB
	clock *Clock
}

// environment is that of programs that go by the clock. Their other clocks, by
// which they measure how long something takes, are right.
func (c *Clock) environment() []string {
	return []string{"LD_PRELOAD=" + c.library, "SEMA_TEST_CLOCK=" + c.file}
}

func (c *Clock) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatalf("a clock: %v", err)
	}
}
