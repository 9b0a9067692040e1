package host

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime/debug"
	"unsafe"
)

// The content of a file may be cut short or overwritten while it is mapped: by
// an editor, a script, or a user who takes it for rubbish. The kernel then
// raises SIGBUS in a process that touches what is no longer there, which would end the
// process. So the mapped content is touched only within touch, which turns the
// fault into a flag.
//
// A damaged file admits no process: its capacity is gone. The permits that are held
// stay good, because the locks do not lie in the content, and nobody begins
// the file anew while one process has it open (see presenceLock). So a permit of
// a damaged file is released like any other. For the same reason it does no
// harm that a claim which faults half-way leaves a slot locked.

// touch runs do, which touches the mapped content, and reports whether the file
// is known to be whole. It does not run do if the file is known to be damaged.
func (f *file) touch(do func()) (whole bool) {
	if f.damaged.Load() {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if whole {
			return
		}
		switch r := recover(); {
		case f.faultsOn(r):
			f.damaged.Store(true)
		case r != nil:
			panic(r)
		}
	}()
	do()
	return true
}

// faultsOn reports whether a panic is a fault in the mapped content.
func (f *file) faultsOn(r any) bool {
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok || len(f.memory) == 0 {
		return false
	}
	begin := uintptr(unsafe.Pointer(&f.memory[0]))
	return fault.Addr()-begin < uintptr(len(f.memory))
}

// guarded is touch for what may fail by itself: with ErrDamaged if the file is
// damaged, before or after.
func (f *file) guarded(do func() error) (err error) {
	f.touch(func() { err = do() })
	if !f.whole() {
		return ErrDamaged
	}
	return err
}

// whole reports whether the file is not damaged, as far as can be seen.
func (f *file) whole() bool {
	f.config()
	return !f.damaged.Load()
}

// A content is what a file was found to be.
type content uint8

const (
	foreign    content = iota // not a file of this package
	unfinished                // empty, all zeros, half made, or cut short
	complete                  // of this layout
	otherKind                 // of another layout of this package
)

// examine reads what the file is, without changing it. The presence lock is
// held, so nobody else is about to make it anew.
func (f *file) examine() (content, uint64, error) {
	var head [unsafe.Sizeof(header{})]byte
	if _, err := f.file.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return foreign, 0, err
	}
	info, err := f.file.Stat()
	if err != nil {
		return foreign, 0, err
	}
	found := binary.NativeEndian.Uint64(head[:])
	switch {
	case found&familyMask != magic&familyMask:
		zero, err := f.allZero()
		if err != nil || !zero {
			return foreign, found, err
		}
		return unfinished, found, nil
	case found == beginning, found == magic && info.Size() < placesAt:
		return unfinished, found, nil
	case found == magic:
		return complete, found, nil
	}
	return otherKind, found, nil
}

// allZero reports whether the file has nothing but zeros, and no more of them
// than this package would leave.
func (f *file) allZero() (bool, error) {
	content := io.NewSectionReader(f.file, 0, mapSize+1)
	chunk := make([]byte, 64<<10)
	for total := 0; ; {
		n, err := content.Read(chunk)
		total += n
		for _, b := range chunk[:n] {
			if b != 0 {
				return false, nil
			}
		}
		if total > mapSize {
			return false, nil
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}
