package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sema-go/sema"
)

// List returns the semaphores of a directory, sorted by file name, including those not
// in use. Options select the directory, as for [Open]. Files that cannot be opened are
// left out; [BadFiles] returns them.
func List(opts ...Option) ([]Info, error) {
	s, entries, err := readDirectory(opts)
	if err != nil {
		return nil, err
	}
	infos := []Info{}
	for _, entry := range entries {
		name, ok := nameOf(entry.Name())
		if !ok {
			continue
		}
		f, err := openFile(name, filepath.Join(s.dir, entry.Name()), stored{capacity: Existing}, s.access)
		if err != nil {
			continue // a bad file, or removed meanwhile
		}
		info, err := f.inspect(context.Background(), false)
		f.unref()
		if err == nil {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

func readDirectory(opts []Option) (settings, []os.DirEntry, error) {
	s, err := newSettings(opts)
	if err != nil {
		return s, nil, named("list", "", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return s, nil, named("list", "", err)
	}
	return s, entries, nil
}

// A BadFile is a file in a directory of semaphores that ends in .sema and cannot be
// used as a semaphore.
type BadFile struct {
	Path string
	Name string // name of the semaphore; "" if no semaphore can have that file name
	Err  error  // reason: wraps ErrDamaged or sema.ErrInvalid; sema.Hint returns the advice
}

// BadFiles returns the damaged and foreign files of a directory that end in .sema,
// sorted by file name. It does not change any file. Options select the directory, as
// for [Open].
func BadFiles(opts ...Option) ([]BadFile, error) {
	s, entries, err := readDirectory(opts)
	if err != nil {
		return nil, err
	}
	bad := []BadFile{}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), suffix) {
			continue
		}
		path := filepath.Join(s.dir, entry.Name())
		name, ok := nameOf(entry.Name())
		if !ok {
			err := named("check", "", invalid(path+" has a name that no semaphore can have", "remove or rename it"))
			bad = append(bad, BadFile{Path: path, Err: err})
			continue
		}
		if err := checkFile(path, s.access); err != nil && !errors.Is(err, fs.ErrNotExist) {
			bad = append(bad, BadFile{path, name, named("check", name, err)})
		}
	}
	return bad, nil
}

// checkFile returns an error that states why a file cannot be used, or nil. It holds
// files.mu so that a file in use by this process is not opened again: with POSIX
// record locks, closing the second descriptor would drop the locks of the process.
func checkFile(path string, access access) error {
	files.mu.Lock()
	defer files.mu.Unlock()
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return invalid(path+" is not a regular file", "remove it")
	}
	if err := access.check(path, info); err != nil {
		return err
	}
	if f := files.byID[identify(info)]; f != nil {
		if !f.intact() {
			return unusable(path, unfinished, 0, false)
		}
		return nil
	}
	file, err := os.OpenFile(path, os.O_RDWR|openFlags, 0)
	if err != nil {
		return err
	}
	defer closeUnlocked(file)
	return checkContent(path, file)
}

// checkContent returns an error if the content cannot be used. It holds the presence
// lock, shared, so that no process resets the file meanwhile. A file that another
// process is resetting is good.
func checkContent(path string, file *os.File) error {
	fd := int(file.Fd())
	if present, err := tryLock(fd, shared, presenceLock, 1); err != nil || !present {
		return err
	}
	is, found, err := examine(file)
	if err != nil || is == complete {
		return err
	}
	used, err := conflict(fd, presenceLock, 1)
	if err != nil {
		return err
	}
	if info, err := file.Stat(); err == nil && info.Size() == 0 && !used {
		return nil // the next Open creates the semaphore
	}
	return unusable(path, is, found, !used)
}

// Remove deletes a semaphore that no process uses, together with its stored values. An
// unused semaphore takes a few kilobytes on disk.
func Remove(name string, opts ...Option) error {
	const op = "remove"
	s, path, err := locate(op, name, opts)
	if err != nil {
		return err
	}
	for start := time.Now(); ; time.Sleep(openPause) {
		f, err := openFile(name, path, stored{capacity: Existing}, s.access)
		if errors.Is(err, fs.ErrNotExist) {
			return &sema.Error{Op: op, Name: name, Err: fs.ErrNotExist, Detail: path, Advice: "check the name, the user and the directory: List returns the semaphores"}
		}
		if err != nil {
			return err
		}
		err = f.remove(op)
		f.unref()
		if !errors.Is(err, sema.ErrInvalid) || time.Since(start) > lingerTimeout {
			return err
		}
	}
}

// remove deletes the file if no other process has it open and the caller has the only
// reference in this process.
func (f *file) remove(op string) error {
	files.mu.Lock()
	defer files.mu.Unlock()
	alone := f.refs.Load() == 1
	if alone {
		var err error
		if alone, err = tryLock(f.fd, exclusive, presenceLock, 1); err != nil {
			return f.wrap(op, err)
		}
	}
	if !alone {
		return named(op, f.name, invalid("it is in use", "close it in all processes first"))
	}
	if err := os.Remove(f.path); err != nil {
		_, lockErr := tryLock(f.fd, shared, presenceLock, 1)
		return f.wrap(op, errors.Join(err, lockErr))
	}
	return nil
}
