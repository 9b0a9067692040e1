//go:build !386 && !arm && !mips && !mipsle

package posix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"weak"

	"github.com/sema-go/sema"
)

// directory contains the semaphores of glibc, as files with filePrefix.
const directory = "/dev/shm"

func fileOf(name string) string { return directory + "/" + filePrefix + strings.TrimPrefix(name, "/") }

// openFlags contains O_NOFOLLOW, because every user can create links in the directory.
const openFlags = os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_CLOEXEC

func supported(string) error { return nil }

func openNamed(op, name string) (*memory, inode, error) {
	f, err := os.OpenFile(fileOf(name), openFlags, 0)
	if err != nil {
		return nil, inode{}, wrapError(op, name, err)
	}
	defer f.Close()
	return mapFile(op, name, f)
}

// createNamed opens the existing semaphore or creates a new one. It retries if another
// process creates or unlinks the semaphore meanwhile.
func createNamed(op, name string, mode fs.FileMode, value uint32, exclusive bool) (*memory, inode, error) {
	for {
		if !exclusive {
			m, file, err := openNamed(op, name)
			if !errors.Is(err, fs.ErrNotExist) {
				return m, file, err
			}
		}
		m, file, err := createNew(op, name, mode, value)
		if exclusive || !errors.Is(err, fs.ErrExist) {
			return m, file, err
		}
	}
}

// createNew creates a draft and links it to the name when it is complete.
func createNew(op, name string, mode fs.FileMode, value uint32) (*memory, inode, error) {
	f, err := createDraft(mode)
	if err != nil {
		return nil, inode{}, wrapError(op, name, err)
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if _, err := f.Write(image(value)); err != nil {
		return nil, inode{}, wrapError(op, name, err)
	}
	m, file, err := mapFile(op, name, f)
	if err != nil {
		return nil, inode{}, err
	}
	if err := os.Link(f.Name(), fileOf(name)); err != nil {
		return nil, inode{}, wrapError(op, name, err)
	}
	return m, file, nil
}

// createDraft creates a file with a name that is not the name of a semaphore.
func createDraft(mode fs.FileMode) (*os.File, error) {
	for {
		draft := fmt.Sprintf("%s/.sema-posix-%016x", directory, rand.Uint64())
		f, err := os.OpenFile(draft, openFlags|os.O_CREATE|os.O_EXCL, mode)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// An inode identifies a file independently of its names.
type inode struct{ device, number uint64 }

func inodeOf(info fs.FileInfo) inode {
	st := info.Sys().(*syscall.Stat_t)
	return inode{uint64(st.Dev), st.Ino}
}

// mapped contains the memory of each file that is mapped in this process, so that a
// semaphore opened many times has one turnstile and one blocked thread. A mapping keeps
// its inode from being reused. It is removed when the memory is unreachable, not when
// the last Semaphore is closed, since goroutines may be in the middle of a call.
var mapped = struct {
	sync.Mutex
	memory map[inode]weak.Pointer[memory]
}{memory: map[inode]weak.Pointer[memory]{}}

func mapFile(op, name string, f *os.File) (*memory, inode, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, inode{}, wrapError(op, name, err)
	}
	if err := checkFile(op, name, info); err != nil {
		return nil, inode{}, err
	}
	file := inodeOf(info)
	mapped.Lock()
	defer mapped.Unlock()
	if m := mapped.memory[file].Value(); m != nil {
		return m, file, nil
	}
	bytes, err := syscall.Mmap(int(f.Fd()), 0, semaphoreSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, inode{}, wrapError(op, name, err)
	}
	if err := checkImage(op, name, bytes); err != nil {
		syscall.Munmap(bytes)
		return nil, inode{}, err
	}
	m := newMemory(bytes)
	mapped.memory[file] = weak.Make(m)
	unmapWhenUnreachable(m, func(m weak.Pointer[memory]) {
		mapped.Lock()
		defer mapped.Unlock()
		if mapped.memory[file] == m {
			delete(mapped.memory, file)
		}
	})
	return m, file, nil
}

// unmapWhenUnreachable unmaps the bytes of m when m is unreachable, and then calls
// forget.
func unmapWhenUnreachable(m *memory, forget func(weak.Pointer[memory])) {
	pointer := weak.Make(m)
	runtime.AddCleanup(m, func(bytes []byte) {
		syscall.Munmap(bytes)
		forget(pointer)
	}, m.bytes)
}

func checkFile(op, name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return newError(op, name, sema.ErrInvalid, fmt.Sprintf("%s is not a regular file (%v)", printable(fileOf(name)), info.Mode()))
	}
	if info.Size() < semaphoreSize {
		return newHintedError(op, name, sema.ErrInvalid, fmt.Sprintf("%s has %d bytes, a semaphore has %d", printable(fileOf(name)), info.Size(), semaphoreSize), "Unlink it and Create it again")
	}
	return nil
}

func newUnnamed(value uint32) (*memory, error) {
	bytes, err := syscall.Mmap(-1, 0, semaphoreSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_ANONYMOUS)
	if err != nil {
		return nil, wrapError("new", "", err)
	}
	copy(bytes, image(value))
	m := newMemory(bytes)
	unmapWhenUnreachable(m, func(weak.Pointer[memory]) {})
	return m, nil
}

func unlinkNamed(op, name string) error {
	if err := syscall.Unlink(fileOf(name)); err != nil {
		return wrapError(op, name, err)
	}
	return nil
}

// unlinkIfSame unlinks the name if it refers to that file.
func unlinkIfSame(name string, file inode) error {
	info, err := os.Lstat(fileOf(name))
	if err != nil || inodeOf(info) != file {
		return nil // already unlinked
	}
	err = unlinkNamed("close", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func listNamed() ([]Info, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, wrapError("list", "", err)
	}
	var list []Info
	for _, e := range entries {
		bare, ok := strings.CutPrefix(e.Name(), filePrefix)
		if !ok || bare == "" {
			continue
		}
		info := inspect("/" + bare)
		if !errors.Is(info.Err, fs.ErrNotExist) { // unlinked meanwhile
			list = append(list, info)
		}
	}
	return list, nil
}

// inspect reads the state of a semaphore without mapping it.
func inspect(name string) Info {
	const op = "list"
	info := Info{Name: name}
	st, err := os.Lstat(fileOf(name))
	if err != nil {
		info.Err = wrapError(op, name, err)
		return info
	}
	info.Mode = st.Mode()
	if info.Err = checkFile(op, name, st); info.Err != nil {
		return info
	}
	f, err := os.OpenFile(fileOf(name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		info.Err = wrapError(op, name, err)
		return info
	}
	defer f.Close()
	bytes := make([]byte, semaphoreSize)
	if _, err := f.ReadAt(bytes, 0); err != nil {
		info.Err = wrapError(op, name, err)
		return info
	}
	if info.Err = checkImage(op, name, bytes); info.Err == nil {
		word := binary.NativeEndian.Uint64(bytes)
		info.Value, info.Waiters = valueOf(word), waitersOf(word)
	}
	return info
}

// printable quotes a path that contains special characters: any user may have chosen
// the name of a listed file.
func printable(path string) string {
	if quoted := strconv.Quote(path); quoted != `"`+path+`"` {
		return quoted
	}
	return path
}

// wrapError adds facts and advice to an error of the file system.
func wrapError(op, name string, err error) error {
	file, detail, advice := printable(fileOf(name)), "", ""
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = &fs.PathError{Op: pathErr.Op, Path: printable(pathErr.Path), Err: pathErr.Err}
	}
	switch {
	case op == "new" || op == "list" && name == "":
	case errors.Is(err, fs.ErrNotExist) && op == "create":
		advice = "check that " + directory + " is mounted"
	case errors.Is(err, fs.ErrNotExist):
		advice = "Create it"
	case errors.Is(err, fs.ErrExist):
		advice = "Open it, or Create it without exclusive"
	case errors.Is(err, fs.ErrPermission) && op == "unlink":
		detail = file + " belongs to another user"
	case errors.Is(err, fs.ErrPermission):
		detail, advice = "this user may not read and write "+file, "ask its owner to change the mode"
	case errors.Is(err, syscall.ELOOP):
		detail, advice = file+" is a symbolic link, which is not followed", "Unlink it"
	}
	return newHintedError(op, name, err, detail, advice)
}
