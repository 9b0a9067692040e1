package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"unsafe"

	"github.com/sema-go/sema"
)

// The content of a file may be truncated or overwritten while it is mapped: by an
// editor, by a script, or by a cleanup of unknown files. The kernel then raises SIGBUS
// in a process that accesses content that no longer exists, which would end the
// process. So the mapped content is accessed only within touch, which turns the fault
// into a flag.
//
// A damaged file grants no permits: its capacity is unknown. Held permits stay valid,
// because the locks are not part of the content, and no process resets the file while
// another has it open (see presenceLock). So a permit of a damaged file is released
// like any other. For the same reason a claim that faults half-way may leave a slot
// locked.

// touch runs do, which accesses the mapped content, and reports whether do completed
// without a fault. It does not run do if the file is known to be damaged.
func (f *file) touch(do func()) (intact bool) {
	if f.damaged.Load() {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if intact {
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

// faultsOn reports whether the panic value r is a fault in the mapped content.
func (f *file) faultsOn(r any) bool {
	fault, ok := r.(interface{ Addr() uintptr })
	if !ok || len(f.memory) == 0 {
		return false
	}
	begin := uintptr(unsafe.Pointer(&f.memory[0]))
	return fault.Addr()-begin < uintptr(len(f.memory))
}

// guarded runs do within touch and returns the error of do, or ErrDamaged if the file
// was damaged before or afterwards.
func (f *file) guarded(do func() error) (err error) {
	f.touch(func() { err = do() })
	if !f.intact() {
		return ErrDamaged
	}
	return err
}

// intact reads the header and reports whether no damage was found, now or earlier.
func (f *file) intact() bool {
	f.config()
	return !f.damaged.Load()
}

// A content classifies a file by what it contains.
type content uint8

const (
	foreign      content = iota // not a file of this package
	unfinished                  // empty, all zeros, half created, or truncated
	complete                    // of this layout
	otherVersion                // of another layout of this package
)

// examine returns the kind of the file and its first word, without changing the file.
// The caller holds the presence lock, so no other process resets the file meanwhile.
func (f *file) examine() (content, uint64, error) { return examine(f.file) }

func examine(file *os.File) (content, uint64, error) {
	var head [unsafe.Sizeof(header{})]byte
	if _, err := file.ReadAt(head[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return foreign, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return foreign, 0, err
	}
	found := binary.NativeEndian.Uint64(head[:])
	switch {
	case found&familyMask != magic&familyMask:
		zero, err := allZero(file)
		if err != nil || !zero {
			return foreign, found, err
		}
		return unfinished, found, nil
	case found == beginning, found == magic && info.Size() < placesAt:
		return unfinished, found, nil
	case found == magic:
		return complete, found, nil
	}
	return otherVersion, found, nil
}

// unusable returns an error that states why a file of that kind cannot be used as it
// is. If alone is true, no other process has the file open.
func unusable(path string, is content, found uint64, alone bool) *sema.Error {
	switch {
	case is == foreign && alone:
		return invalid(path+" was not created by Sema", "remove it, or use another name or directory")
	case is == otherVersion:
		return invalid(fmt.Sprintf("%s has the layout of another version of Sema (%#x, this one has %#x)", path, found, uint64(magic)),
			"use one version in all processes; a file that no process has open is created again by Open with a capacity")
	}
	return &sema.Error{Err: ErrDamaged, Detail: path}
}

// allZero reports whether the file contains only zeros and is no longer than a file
// of this package.
func allZero(file *os.File) (bool, error) {
	content := io.NewSectionReader(file, 0, mapSize+1)
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
