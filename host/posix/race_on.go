//go:build race

package posix

import (
	"runtime"
	"unsafe"
)

// The race detector does not track atomic operations on mapped memory. These functions
// establish the happens-before edge from a post to the wait that it ends, at an address
// that the detector tracks.

func raceAcquire(m *memory) { runtime.RaceAcquire(unsafe.Pointer(&m.word)) }
func raceRelease(m *memory) { runtime.RaceReleaseMerge(unsafe.Pointer(&m.word)) }
