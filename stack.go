package sema

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/sema-go/sema/internal/callsite"
)

// A stack is the call stack of an acquire as program counters. It is cheap to capture,
// and converted to text only when it is printed.
type stack []uintptr

const stackDepth = 32

func callers() stack {
	var pcs [stackDepth]uintptr
	n := runtime.Callers(2, pcs[:])
	return append(stack(nil), pcs[:n]...)
}

// frames calls yield for each frame, starting with the first outside Sema.
func (st stack) frames(yield func(runtime.Frame) bool) {
	if len(st) == 0 {
		return
	}
	inside := true
	frames := runtime.CallersFrames(st)
	for {
		f, more := frames.Next()
		inside = inside && callsite.Own(f)
		if !inside && !yield(f) || !more {
			return
		}
	}
}

// site returns the caller's dir/file.go:line, or "" for an empty stack.
func (st stack) site() string {
	for f := range st.frames {
		return callsite.Name(f)
	}
	return ""
}

// place returns the positions of the caller and of two of its callers, because one
// function may acquire for a whole program.
func (st stack) place() string {
	var key placeKey
	copy(key[:], st)
	if known, ok := places.Load(key); ok {
		return known.(string)
	}
	const depth = 3
	var b strings.Builder
	n := 0
	for f := range st.frames {
		fmt.Fprintf(&b, "%s:%d ", f.File, f.Line)
		if n++; n == depth {
			break
		}
	}
	places.Store(key, b.String())
	return b.String()
}

// places caches the results of stack.place: resolving three frames takes microseconds.
// A program has as many places as it has call paths to its acquires.
var places sync.Map

// A placeKey is the top of a stack: some frames of Sema, and three of its callers.
type placeKey [12]uintptr

// String returns the stack in the format of a panic.
func (st stack) String() string {
	if len(st) == 0 {
		return "\t(not recorded: see sema.DiagnoseFull)\n"
	}
	var b strings.Builder
	for f := range st.frames {
		fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

// libraryDepth returns the number of frames of Sema from its caller up to the first
// frame outside. runtime/pprof skips them, in addition to Profile.Add.
func libraryDepth() int {
	var pcs [stackDepth]uintptr
	n := runtime.Callers(2, pcs[:])
	frames := runtime.CallersFrames(pcs[:n])
	for depth := 0; ; depth++ {
		f, more := frames.Next()
		if !callsite.Own(f) || !more {
			return depth
		}
	}
}

// goroutineID returns the id in the first line of the goroutine's stack dump. The
// runtime exposes the id nowhere else.
func goroutineID() (id uint64) {
	var buf [64]byte
	text := string(buf[:runtime.Stack(buf[:], false)])
	fmt.Sscanf(text, "goroutine %d ", &id)
	return id
}
