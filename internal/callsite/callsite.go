// Package callsite tells where in somebody's code Sema was called.
package callsite

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Own reports whether a frame is the library's own, tests excepted.
func Own(f runtime.Frame) bool {
	rest, ok := strings.CutPrefix(f.Function, "github.com/sema-go/sema")
	return ok && (rest[0] == '.' || rest[0] == '/') && !strings.HasSuffix(f.File, "_test.go")
}

// Name is a frame as dir/file.go:line.
func Name(f runtime.Frame) string {
	return fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line)
}

// sites is where the return addresses in stacks are, "" for Sema's own: to look
// one up takes longer than all else, and a program has few.
var sites sync.Map // uintptr → string

// Here looks up to twice as far as near. Who calls is mostly near, and to walk up
// a stack takes time for each frame.
const near = 6

// Here is the first caller outside Sema, "" if there is none near.
func Here() string {
	var pcs [near]uintptr
	for skip := 2; skip <= 2+near; skip += near {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			site, known := sites.Load(pc)
			if !known {
				site = outside(pc)
				sites.Store(pc, site)
			}
			if site != "" {
				return site.(string)
			}
		}
		if n < near {
			break
		}
	}
	return ""
}

func outside(pc uintptr) string {
	frames := runtime.CallersFrames([]uintptr{pc})
	for {
		f, more := frames.Next()
		if !Own(f) && !strings.HasPrefix(f.Function, "runtime.") { // where goroutines begin
			return Name(f)
		}
		if !more {
			return ""
		}
	}
}
