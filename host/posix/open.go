package posix

import (
	"fmt"
	"io/fs"
	"strings"
	"unsafe"

	"github.com/sema-go/sema"
)

// Open opens the semaphore that some program created under the name, like
// sem_open without O_CREAT. It fails with [fs.ErrNotExist] if there is none,
// and [fs.ErrPermission] unless this process may read and write it.
//
// A name may begin with slashes and has no others; with the slashes left off
// it has 1 to 251 bytes. Open a semaphore once and share it between
// goroutines; to open it again is cheap, and makes a Semaphore that is closed
// by itself.
func Open(name string) (*Semaphore, error) {
	const op = "open"
	name, err := canonical(op, name)
	if err != nil {
		return nil, err
	}
	m, file, err := openNamed(op, name)
	if err != nil {
		return nil, err
	}
	return newSemaphore(m, name, file), nil
}

// Create makes a semaphore of that value under the name, like sem_open with
// O_CREAT. The permission bits of mode select which users may open it, less the
// process's umask: both reading and writing are needed. If the name is taken,
// it fails with [fs.ErrExist] if exclusive, and else opens what is there,
// whatever its value and mode. No process ever sees a semaphore half created.
func Create(name string, mode fs.FileMode, value uint32, exclusive bool) (*Semaphore, error) {
	const op = "create"
	name, err := canonical(op, name)
	if err != nil {
		return nil, err
	}
	if err := checkValue(op, name, value); err != nil {
		return nil, err
	}
	m, file, err := createNamed(op, name, mode.Perm(), value, exclusive)
	if err != nil {
		return nil, err
	}
	return newSemaphore(m, name, file), nil
}

// New makes a semaphore without a name, which only this process can reach. It
// is for code that takes a Semaphore, and for tests of it; to share one
// without a name, [Init] it in shared memory.
func New(value uint32) (*Semaphore, error) {
	if err := checkValue("new", "", value); err != nil {
		return nil, err
	}
	m, err := newUnnamed(value)
	if err != nil {
		return nil, err
	}
	return newSemaphore(m, "", inode{}), nil
}

// Init makes a semaphore in the first 32 bytes of mem, like sem_init with
// pshared 1. mem is memory shared with the other processes, at an address that
// is a multiple of 8, and stays mapped while anybody uses the semaphore.
func Init(mem []byte, value uint32) (*Semaphore, error) {
	const op = "init"
	if err := checkValue(op, "", value); err != nil {
		return nil, err
	}
	if err := checkPlace(op, mem); err != nil {
		return nil, err
	}
	copy(mem, image(value))
	return newSemaphore(newMemory(mem[:semaphoreSize]), "", inode{}), nil
}

// Attach uses the semaphore in the first 32 bytes of mem, which another
// program made with sem_init and pshared 1, or [Init]. The same holds for mem
// as for Init. Attach once and share the Semaphore: each one may block a
// thread.
func Attach(mem []byte) (*Semaphore, error) {
	const op = "attach"
	if err := checkPlace(op, mem); err != nil {
		return nil, err
	}
	m := newMemory(mem[:semaphoreSize])
	if err := checkImage(op, "", mem); err != nil {
		return nil, err
	}
	return newSemaphore(m, "", inode{}), nil
}

// Unlink removes the name, like sem_unlink. Processes that have the semaphore open
// keep it; a new one may be created under the name. It fails with
// [fs.ErrNotExist] if there is none.
func Unlink(name string) error {
	const op = "unlink"
	name, err := canonical(op, name)
	if err != nil {
		return err
	}
	return unlinkNamed(op, name)
}

// An Info is what [List] found out about a semaphore.
type Info struct {
	Name    string // with a leading slash; any user may have chosen it, so quote it to print it
	Mode    fs.FileMode
	Value   uint32
	Waiters uint32 // see [Semaphore.Waiters]
	Err     error  // why Value and Waiters are not known, or nil
}

// List lists the named semaphores of this host, in order of their names.
func List() ([]Info, error) { return listNamed() }

const longestName = 255 - len(filePrefix)

// filePrefix begins the file names of semaphores.
const filePrefix = "sem."

// canonical is the name with one leading slash, if it is one by glibc's rules.
func canonical(op, name string) (string, error) {
	bare := strings.TrimLeft(name, "/")
	detail := ""
	switch {
	case bare == "":
		detail = "empty name"
	case strings.ContainsAny(bare, "/\x00"):
		detail = "a name has no slash but leading ones, and no NUL"
	case len(bare) > longestName:
		detail = fmt.Sprintf("the name has %d bytes, and may have %d", len(bare), longestName)
	default:
		return "/" + bare, nil
	}
	return "", fault(op, name, sema.ErrInvalid, detail)
}

// checkPlace says whether a semaphore can be at the beginning of mem.
func checkPlace(op string, mem []byte) error {
	if err := supported(op); err != nil {
		return err
	}
	if len(mem) < semaphoreSize {
		return fault(op, "", sema.ErrInvalid, fmt.Sprintf("%d bytes of memory, want %d", len(mem), semaphoreSize))
	}
	if address := uintptr(unsafe.Pointer(&mem[0])); address%8 != 0 {
		return fault(op, "", sema.ErrInvalid, fmt.Sprintf("memory at address %#x, want a multiple of 8", address))
	}
	return nil
}
