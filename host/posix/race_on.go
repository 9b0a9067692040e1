//go:build race

package posix

import (
	"runtime"
	"unsafe"
)

// The race detector does not see atomic operations on mapped memory. These
// tell it, by an address it does see, that what came before a post comes before
// what follows the wait it lets through.

func raceAcquire(m *memory) { runtime.RaceAcquire(unsafe.Pointer(&m.word)) }
func raceRelease(m *memory) { runtime.RaceReleaseMerge(unsafe.Pointer(&m.word)) }
