//go:build linux && !sema_portable && !race

package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/sema-go/sema"
)

// FuzzRecord_IsCheckedWhenRead writes arbitrary bytes as the record of a holder, as
// another process could.
func FuzzRecord_IsCheckedWhenRead(f *testing.F) {
	mine := self()
	mine.since, mine.slots = time.Now().UnixNano(), 2
	add := func(r record) { f.Add(bytes.Clone((*[recordSize]byte)(unsafe.Pointer(&r))[:])) }
	add(mine)
	elsewhere := mine
	elsewhere.namespace, elsewhere.pid = 1, 1<<31+5
	add(elsewhere)
	elsewhere.pid, elsewhere.since = 7, 1<<62
	copy(elsewhere.command[:], "\x1b[2Jgone\xff\u202e")
	add(elsewhere)
	f.Fuzz(func(t *testing.T, data []byte) {
		sem := openHere(t, 4)
		p, err := sem.Acquire(context.Background(), 3)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		var r record
		copy((*[recordSize]byte)(unsafe.Pointer(&r))[:], data)
		sem.file.records[0] = r
		holders, err := inspectHolders(sem)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, h := range holders {
			sum += h.Weight
			checkHolder(t, h)
		}
		if sum != 3 {
			t.Errorf("%+v: %d held, want 3", holders, sum)
		}
	})
}

func checkHolder(t *testing.T, h Holder) {
	t.Helper()
	if h.PID < 0 || h.PID > maxPID || h.Weight < 1 || h.Weight > maxCapacity {
		t.Errorf("%+v", h)
	}
	if h.Since.After(time.Now()) || h.PID != 0 && h.Since.Unix() < 0 {
		t.Errorf("since %v", h.Since)
	}
	if len(h.Command) > maxCommand || !utf8.ValidString(h.Command) {
		t.Errorf("command %q", h.Command)
	}
	for _, r := range h.Command {
		if !unicode.IsPrint(r) {
			t.Errorf("%q in command %q", r, h.Command)
		}
	}
}

// FuzzFile_SurvivesAnyContent overwrites a part of the file of a semaphore in use, and
// then opens the file again.
func FuzzFile_SurvivesAnyContent(f *testing.F) {
	f.Add([]byte("garbage "), uint32(0), uint32(placesAt))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint32(8), uint32(placesAt))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint32(24), uint32(placesAt+placeSize))
	f.Add([]byte{1}, uint32(placesAt), uint32(4096))
	f.Add([]byte{}, uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, data []byte, at, size uint32) {
		sem := openHere(t, 4)
		p, err := sem.Acquire(context.Background(), 2)
		if err != nil {
			t.Fatal(err)
		}
		file := sem.file.file
		_, err = file.WriteAt(data, int64(at%(recordsAt+2*recordSize)))
		if err := errors.Join(err, file.Truncate(int64(size%mapSize))); err != nil {
			t.Fatal(err)
		}
		use(t, sem)
		p.Release()
		use(t, sem)
		path := sem.file.path
		if err := sem.Close(); err != nil {
			t.Error(err)
		}
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Open("internal", 4, Dir(filepath.Dir(path)))
		if err != nil {
			if now, readErr := os.ReadFile(path); readErr != nil || string(now) != string(before) || !errors.Is(err, sema.ErrInvalid) {
				t.Errorf("rejected with %v, but the file was changed: %v", err, readErr)
			}
			return
		}
		defer again.Close()
		q, err := again.TryAcquire(context.Background(), 4) // whatever capacity is stored now
		if err != nil && !errors.Is(err, sema.ErrDraining) && !errors.Is(err, sema.ErrTooLarge) && !errors.Is(err, sema.ErrFull) {
			t.Errorf("TryAcquire after Open: %v", err)
		}
		q.Release()
	})
}

// use calls everything that reads the file. Any result is fine, except a crash.
func use(t *testing.T, sem *Semaphore) {
	t.Helper()
	ended, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if p, err := sem.TryAcquire(context.Background(), 1); err == nil {
		p.Release()
	}
	if p, err := sem.Acquire(ended, 2); err == nil {
		p.Release()
	}
	if stats, err := inspectStats(sem); err == nil && (stats.Capacity < 0 || stats.Capacity > maxCapacity || stats.InUse < 0 || stats.Waiters < 0) {
		t.Errorf("%+v", stats)
	}
	holders, _ := inspectHolders(sem)
	for _, h := range holders {
		checkHolder(t, h)
	}
}
