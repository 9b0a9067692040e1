// Package callsite finds the line outside of Sema from which Sema was called.
package callsite

import (
	"fmt"
	"path"
	"runtime"
	"strings"
	"sync"
)

// Own reports whether a frame belongs to the library, except for its tests.
func Own(f runtime.Frame) bool {
	rest, ok := strings.CutPrefix(f.Function, "github.com/sema-go/sema")
	return ok && (rest[0] == '.' || rest[0] == '/') && !strings.HasSuffix(f.File, "_test.go")
}

// Name returns a frame as dir/file.go:line.
func Name(f runtime.Frame) string {
	return fmt.Sprintf("%s/%s:%d", path.Base(path.Dir(f.File)), path.Base(f.File), f.Line)
}

// sites caches the call sites of return addresses, "" for Sema's own. Looking up an address
// takes longer than everything else, and a program has few of them.
var sites sync.Map // uintptr → string

// near is the number of frames that Here reads at a time, at most twice. The caller is mostly
// near, and walking up the stack takes time for each frame.
const near = 6

// Here returns the first caller outside of Sema as dir/file.go:line. It returns "" if there is
// none within 2 × near frames.
func Here() string {
	var pcs [near]uintptr
	for skip := 2; skip <= 2+near; skip += near {
		n := runtime.Callers(skip, pcs[:])
		for _, pc := range pcs[:n] {
			site, known := sites.Load(pc)
			if !known {
				site = siteOf(pc)
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

func siteOf(pc uintptr) string {
	frames := runtime.CallersFrames([]uintptr{pc})
	for {
		f, more := frames.Next()
		if !Own(f) && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "sync.") { // the entry points of goroutines, also of WaitGroup.Go
			return Name(f)
		}
		if !more {
			return ""
		}
	}
}
