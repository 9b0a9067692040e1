package sema

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/sema-go/sema/internal/callsite"
)

// A stack is where something was acquired, as program counters: cheap to take,
// turned into text only when somebody reads it.
type stack []uintptr

const stackDepth = 32

func callers() stack {
	var pcs [stackDepth]uintptr
	n := runtime.Callers(2, pcs[:])
	return append(stack(nil), pcs[:n]...)
}

// frames calls yield for each frame from the first outside Sema on.
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

// site is the caller's dir/file.go:line, or nothing for an empty stack.
func (st stack) site() string {
	for f := range st.frames {
		return callsite.Name(f)
	}
	return ""
}

// place returns where the caller is, and its callers: one function may acquire for a
// whole program.
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

// places are those of stacks that were seen: to look up three frames takes
// microseconds. A program has as many as it has ways to its acquires.
var places sync.Map

// A placeKey is the top of a stack: some frames of Sema, and three of its callers.
type placeKey [12]uintptr

// String is the stack as a panic would print it.
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

// libraryDepth is how many frames of Sema there are from its caller up to the
// first frame outside, for runtime/pprof to leave out, besides Profile.Add.
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

// goroutineID is the number in the first line of the goroutine's stack dump,
// the only place the runtime tells it.
func goroutineID() (id uint64) {
	var buf [64]byte
	text := string(buf[:runtime.Stack(buf[:], false)])
	fmt.Sscanf(text, "goroutine %d ", &id)
	return id
}
