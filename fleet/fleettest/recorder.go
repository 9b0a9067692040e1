package fleettest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"pgregory.net/rapid"
)

// explore has rapid look for a failure of a property, in at least so many cases,
// and returns the shortest it has found. (How many rapid tries at a time is set
// by its flag -rapid.checks, which can ask for more.)
func explore(test string, cases int, property func(*rapid.T)) error {
	tried := 0
	counted := func(t *rapid.T) {
		tried++
		property(t)
	}
	for before := -1; tried < cases && tried > before; {
		before = tried // it may have been told to try none
		r := &recorder{name: test}
		done := make(chan struct{})
		go func() { // which FailNow ends
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

// A recorder is what rapid takes for a test, so that a check can be run, and
// fail, outside of one.
type recorder struct {
	name   string
	mu     sync.Mutex
	lines  []string
	failed bool
}

func (r *recorder) Helper()      {}
func (r *recorder) Name() string { return r.name }

// Log keeps what is said after the failure: that is about the shortest case.
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
