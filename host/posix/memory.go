package posix

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/sema-go/sema"
)

// semaphoreSize is sizeof(sem_t). sharedMark is the int that glibc writes after the futex
// word if processes share the semaphore (FUTEX_SHARED). Waiters of a semaphore without it
// are woken by futex calls that are private to the process.
const (
	semaphoreSize = 32
	markOffset    = 8
	sharedMark    = 128
)

// A memory is a mapped semaphore. All Semaphores of this process that have the same file
// open share one memory. The word is
//
//	waiters (32 bits) | value (32 bits)
//
// and every waiter, in any process, sleeps while the value half is 0.
//
// No wake-up is lost among live processes. This follows from one invariant: while the
// value is above 0 and a registered waiter sleeps, some thread is awake that will take a
// permit or wake a waiter. This thread is a poster between its CAS and its wake-up, or a
// waiter between its wake-up and its next read of the word. Each step preserves the
// invariant:
//
//   - A waiter registers before it first reads the word. So a poster that sees no
//     waiters has raised the value before that read. The kernel also checks the value
//     again before it puts a thread to sleep.
//   - Every post that sees waiters wakes one sleeper, so two posts wake two.
//   - A woken waiter takes a permit, or finds none (another caller was faster) and may
//     sleep again, or deregisters because its context ended or its semaphore was closed,
//     perhaps at the very moment a post woke it. That post raised the value before the
//     wake-up. The waiter deregisters and reads the word in one atomic step, so it sees
//     the permit if it is still free, and wakes another waiter instead.
//   - The next waiter in the turnstile reads the word before it sleeps.
//
// The kernel reports a wake-up that coincides with a signal or a timeout as a wake-up.
// The code does not distinguish them: after each return it reads the word again.
type memory struct {
	word        *atomic.Uint64 // in bytes
	value       *uint32        // the half of word that the kernel watches
	bytes       []byte         // mapped by this package, or passed to Init or Attach and kept reachable
	turns       turnstile      // a goroutine that has passed it may sleep, so at most one thread blocks
	interrupted uint32         // atomic; not 0: block returns
	pollOnly    atomic.Bool    // the kernel cannot sleep on two words: sleep for pollInterval at a time
}

const oneWaiter = 1 << 32

func valueOf(word uint64) uint32   { return uint32(word) }
func waitersOf(word uint64) uint32 { return uint32(word >> 32) }

// bigEndian reports whether the value, the low half of the word, has the higher
// address.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

func newMemory(bytes []byte) *memory {
	m := &memory{word: (*atomic.Uint64)(unsafe.Pointer(&bytes[0])), bytes: bytes}
	m.value = (*uint32)(unsafe.Pointer(&bytes[0]))
	if bigEndian {
		m.value = (*uint32)(unsafe.Pointer(&bytes[4]))
	}
	return m
}

// image returns the bytes of a new sem_t.
func image(value uint32) []byte {
	b := make([]byte, semaphoreSize)
	binary.NativeEndian.PutUint64(b, uint64(value))
	binary.NativeEndian.PutUint32(b[markOffset:], sharedMark)
	return b
}

// checkImage returns an error unless the bytes are a semaphore shared between
// processes, created by glibc or by this package.
func checkImage(op, name string, bytes []byte) error {
	if mark := binary.NativeEndian.Uint32(bytes[markOffset:]); mark != sharedMark {
		return newHintedError(op, name, errors.ErrUnsupported, fmt.Sprintf("not glibc's layout of a semaphore that processes share (mark %d, want %d)", mark, sharedMark),
			"use sem_init with pshared 1, and the same C library in all programs")
	}
	if v := valueOf(binary.NativeEndian.Uint64(bytes)); v > MaxValue {
		return newError(op, name, sema.ErrInvalid, fmt.Sprintf("not a semaphore: value %d is above the maximum, %d", v, MaxValue))
	}
	return nil
}

func (m *memory) load() uint64 {
	word := m.word.Load()
	runtime.KeepAlive(m)
	return word
}

// take acquires a permit if one is free. Here and below, KeepAlive delays the cleanup
// that unmaps the word.
func (m *memory) take() bool {
	for {
		word := m.word.Load()
		if valueOf(word) == 0 {
			runtime.KeepAlive(m)
			return false
		}
		if m.word.CompareAndSwap(word, word-1) {
			raceAcquire(m)
			runtime.KeepAlive(m)
			return true
		}
	}
}

// post raises the value and wakes a waiter. It reports false if that would exceed MaxValue.
func (m *memory) post() bool {
	raceRelease(m)
	for {
		word := m.word.Load()
		if valueOf(word) >= MaxValue {
			runtime.KeepAlive(m)
			return false
		}
		if m.word.CompareAndSwap(word, word+1) {
			if waitersOf(word) > 0 {
				m.wake(1)
			}
			runtime.KeepAlive(m)
			return true
		}
	}
}

// sleep waits for a permit and acquires it, unless cancelled returns true. The caller
// has passed the turnstile, so one goroutine of the process sleeps at a time. Code that
// changes the result of cancelled must call interrupt afterwards.
func (m *memory) sleep(cancelled func() bool) error {
	m.word.Add(oneWaiter)
	for {
		// Reset before cancelled is called: from here on, interrupt ends the sleep
		// even before it begins.
		atomic.StoreUint32(&m.interrupted, 0)
		if cancelled() {
			m.deregister()
			return nil
		}
		word := m.word.Load()
		if valueOf(word) == 0 {
			if err := m.block(); err != nil {
				m.deregister()
				return err
			}
			continue
		}
		if m.word.CompareAndSwap(word, word-1-oneWaiter) {
			raceAcquire(m)
			runtime.KeepAlive(m)
			return nil
		}
	}
}

// deregister removes a waiter without a permit from the count, and passes on a wake-up
// that the waiter may have received.
func (m *memory) deregister() {
	left := m.word.Add(^uint64(oneWaiter - 1))
	if valueOf(left) > 0 && waitersOf(left) > 0 {
		m.wake(1)
	}
	runtime.KeepAlive(m)
}

// repair sets the value, wakes all waiters and returns the previous value.
func (m *memory) repair(value uint32) (was uint32) {
	raceRelease(m)
	for {
		word := m.word.Load()
		if m.word.CompareAndSwap(word, word&^uint64(oneWaiter-1)|uint64(value)) {
			m.wake(allWaiters)
			runtime.KeepAlive(m)
			return valueOf(word)
		}
	}
}

const allWaiters = 1<<31 - 1
