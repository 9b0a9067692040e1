package posix

import (
	"fmt"
	"io/fs"
	"strings"
	"unsafe"

	"github.com/sema-go/sema"
)

// Open opens an existing named semaphore, like sem_open without O_CREAT. It fails with
// [fs.ErrNotExist] if there is none, and with [fs.ErrPermission] unless this process
// may read and write it.
//
// A name may begin with slashes and contains no others. Without the leading slashes it
// has 1 to 251 bytes. Open a semaphore once and share it between goroutines. Opening it
// again is cheap and returns a Semaphore that is closed independently.
func Open(name string) (*Semaphore, error) {
	const op = "open"
	name, err := canonicalName(op, name)
	if err != nil {
		return nil, err
	}
	m, file, err := openNamed(op, name)
	if err != nil {
		return nil, err
	}
	return newSemaphore(m, name, file), nil
}

// Create creates a named semaphore with the given value, like sem_open with O_CREAT.
// The permission bits of mode, less the umask of the process, select the users that may
// open it: they need both read and write permission. If the name exists, Create fails
// with [fs.ErrExist] if exclusive is true. Otherwise it opens the existing semaphore,
// whatever its value and mode. No process ever sees an incomplete semaphore.
func Create(name string, mode fs.FileMode, value uint32, exclusive bool) (*Semaphore, error) {
	const op = "create"
	name, err := canonicalName(op, name)
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

// New creates a semaphore without a name, which only this process can use: for code
// that takes a Semaphore, and for tests of such code. To share a semaphore without a
// name, use [Init] in shared memory.
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

// Init creates a semaphore in the first 32 bytes of mem, like sem_init with pshared 1.
// mem is memory shared with the other processes, at an address that is a multiple of 8.
// It must stay mapped while the semaphore is in use.
func Init(mem []byte, value uint32) (*Semaphore, error) {
	const op = "init"
	if err := checkValue(op, "", value); err != nil {
		return nil, err
	}
	if err := checkMemory(op, mem); err != nil {
		return nil, err
	}
	copy(mem, image(value))
	return newSemaphore(newMemory(mem[:semaphoreSize]), "", inode{}), nil
}

// Attach uses the semaphore in the first 32 bytes of mem, which another program created
// with sem_init and pshared 1, or with [Init]. The requirements of Init apply to mem.
// Attach once and share the Semaphore: each Semaphore may block a thread.
func Attach(mem []byte) (*Semaphore, error) {
	const op = "attach"
	if err := checkMemory(op, mem); err != nil {
		return nil, err
	}
	m := newMemory(mem[:semaphoreSize])
	if err := checkImage(op, "", mem); err != nil {
		return nil, err
	}
	return newSemaphore(m, "", inode{}), nil
}

// Unlink removes the name, like sem_unlink. Processes that have the semaphore open can
// continue to use it. A new semaphore may be created with the name. Unlink fails with
// [fs.ErrNotExist] if the name does not exist.
func Unlink(name string) error {
	const op = "unlink"
	name, err := canonicalName(op, name)
	if err != nil {
		return err
	}
	return unlinkNamed(op, name)
}

// An Info describes a semaphore. [List] returns it.
type Info struct {
	Name    string // with a leading slash; any user may have chosen it, so quote it to print it
	Mode    fs.FileMode
	Value   uint32
	Waiters uint32 // see [Semaphore.Waiters]
	Err     error  // if not nil, Value and Waiters are unknown
}

// List returns the named semaphores of this host, sorted by name.
func List() ([]Info, error) { return listNamed() }

const longestName = 255 - len(filePrefix)

// filePrefix is the prefix of the file names of semaphores.
const filePrefix = "sem."

// canonicalName returns the name with one leading slash, or an error if the name is
// invalid by the rules of glibc.
func canonicalName(op, name string) (string, error) {
	bare := strings.TrimLeft(name, "/")
	detail := ""
	switch {
	case bare == "":
		detail = "empty name"
	case strings.ContainsAny(bare, "/\x00"):
		detail = "the name contains NUL, or a slash that is not leading"
	case len(bare) > longestName:
		detail = fmt.Sprintf("the name has %d bytes, the maximum is %d", len(bare), longestName)
	default:
		return "/" + bare, nil
	}
	return "", newError(op, name, sema.ErrInvalid, detail)
}

// checkMemory returns an error unless a semaphore can be at the beginning of mem.
func checkMemory(op string, mem []byte) error {
	if err := supported(op); err != nil {
		return err
	}
	if len(mem) < semaphoreSize {
		return newError(op, "", sema.ErrInvalid, fmt.Sprintf("%d bytes of memory, want %d", len(mem), semaphoreSize))
	}
	if address := uintptr(unsafe.Pointer(&mem[0])); address%8 != 0 {
		return newError(op, "", sema.ErrInvalid, fmt.Sprintf("memory at address %#x, want a multiple of 8", address))
	}
	return nil
}
