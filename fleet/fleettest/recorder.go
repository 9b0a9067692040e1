package fleettest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"pgregory.net/rapid"
)

// explore runs a property with rapid in at least so many cases, and returns the smallest
// failure. (The flag -rapid.checks sets how many cases rapid tries at a time, which may be
// more.)
func explore(test string, cases int, property func(*rapid.T)) error {
	tried := 0
	counted := func(t *rapid.T) {
		tried++
		property(t)
	}
	for before := -1; tried < cases && tried > before; {
		before = tried // -rapid.checks may be 0
		r := &recorder{name: test}
		done := make(chan struct{})
		go func() { // FailNow ends this goroutine
			defer close(done)
			rapid.Check(r, counted)
		}()
		<-done
		if r.Failed() {
			return errors.New(strings.Join(r.lines, "\n"))
		}
	}
	return nil
}

// A recorder is the test that rapid sees, so that a check can run, and fail, outside of a test.
type recorder struct {
	name   string
	mu     sync.Mutex
	lines  []string
	failed bool
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

// Log keeps what is logged after the failure: it is about the smallest case.
func (r *recorder) Log(args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if line := fmt.Sprint(args...); r.failed && !strings.HasPrefix(line, "[rapid] draw") {
		r.lines = append(r.lines, line)
	}
}

func (r *recorder) Error(args ...any) {
	r.Fail()
	r.Log(args...)
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	r.FailNow()
}

func (r *recorder) Logf(format string, args ...any)   { r.Log(fmt.Sprintf(format, args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

func (r *recorder) Skip(args ...any)                 { r.Fatal(args...) }
func (r *recorder) Skipf(format string, args ...any) { r.Fatalf(format, args...) }
func (r *recorder) SkipNow()                         { r.FailNow() }

func (r *recorder) Fail() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
