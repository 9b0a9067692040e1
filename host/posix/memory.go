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

// semaphoreSize is sizeof(sem_t), and sharedMark what glibc writes behind the
// word of one that processes share (FUTEX_SHARED): one without it is woken by
// futex calls that do not leave the process.
const (
	semaphoreSize = 32
	markOffset    = 8
	sharedMark    = 128
)

// memory is a semaphore where it lies, and the one door to it that the
// goroutines of this process have. The word is
//
//	waiters (32 bits) | value (32 bits)
//
// and whoever sleeps, in any process, sleeps on its value half being 0.
//
// No wake-up is lost among the living, which rests on one invariant: while the
// value is above 0 and a registered waiter sleeps, somebody is awake who will
// see to it: a poster between its CAS and its wake-up, or a waiter between its
// waking and its next look at the word. Each step keeps it:
//
//   - Waiters register before their first look, so a poster who sees no
//     waiters has raised the value before that look; and the kernel looks once
//     more before it puts anybody to sleep.
//   - Every post that sees waiters wakes one sleeper, so two posts wake two.
//   - Who was woken takes a permit, or sees that there is none (somebody was
//     faster) and may sleep, or resigns: its context ended or its semaphore was
//     closed, perhaps at the very moment a post woke it. Whatever post that was
//     raised the value before it woke, so the resigning waiter, reading the word
//     in the same step that takes it out of the count, sees its permit if it
//     is still there, and wakes another in its place.
//   - Who follows in the turnstile looks before it sleeps.
//
// The kernel reports a wake-up that came together with a signal or a timeout
// as a wake-up, and we do not distinguish: each return is a reason to look.
type memory struct {
	word   *atomic.Uint64 // in bytes
	value  *uint32        // the half of word that the kernel watches
	bytes  []byte         // mapped by us, or kept for who gave them
	turns  turnstile      // who is through may sleep, so one thread blocks at most
	nudge  uint32         // atomic; not 0: the sleeper shall look up
	slices atomic.Bool    // the kernel cannot sleep on two words: sleep in slices
}

const oneWaiter = 1 << 32

func valueOf(word uint64) uint32   { return uint32(word) }
func waitersOf(word uint64) uint32 { return uint32(word >> 32) }

// bigEndian: the value, the low half, comes second.
var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

func newMemory(bytes []byte) *memory {
	m := &memory{word: (*atomic.Uint64)(unsafe.Pointer(&bytes[0])), bytes: bytes}
	m.value = (*uint32)(unsafe.Pointer(&bytes[0]))
	if bigEndian {
		m.value = (*uint32)(unsafe.Pointer(&bytes[4]))
	}
	return m
}

// image is what a fresh sem_t looks like.
func image(value uint32) []byte {
	b := make([]byte, semaphoreSize)
	binary.NativeEndian.PutUint64(b, uint64(value))
	binary.NativeEndian.PutUint32(b[markOffset:], sharedMark)
	return b
}

// checkImage says whether the bytes are a semaphore shared between processes,
// made by glibc or by us.
func checkImage(op, name string, bytes []byte) error {
	if mark := binary.NativeEndian.Uint32(bytes[markOffset:]); mark != sharedMark {
		return hinted(op, name, errors.ErrUnsupported, fmt.Sprintf("not glibc's layout of a semaphore that processes share (mark %d, want %d)", mark, sharedMark),
			"use sem_init with pshared 1, and the same C library in all programs")
	}
	if v := valueOf(binary.NativeEndian.Uint64(bytes)); v > MaxValue {
		return fault(op, name, sema.ErrInvalid, fmt.Sprintf("value %d is above the maximum, %d: this is no semaphore", v, MaxValue))
	}
	return nil
}

func (m *memory) load() uint64 {
	word := m.word.Load()
	runtime.KeepAlive(m)
	return word
}

// take takes a permit if one is free. Here and below, KeepAlive holds off the
// cleanup that unmaps the word.
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

// post gives a permit, unless that would exceed MaxValue.
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

// sleep takes a permit as soon as there is one, unless resigned says to leave
// it. Only who is through the turnstile may sleep; who changes what resigned
// says calls stir afterwards.
func (m *memory) sleep(resigned func() bool) error {
	m.word.Add(oneWaiter)
	for {
		// Lowered before resigned is asked: a stir from here on ends the sleep
		// before it begins.
		atomic.StoreUint32(&m.nudge, 0)
		if resigned() {
			m.resign()
			return nil
		}
		word := m.word.Load()
		if valueOf(word) == 0 {
			if err := m.block(); err != nil {
				m.resign()
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

// resign takes a waiter out of the count without a permit, and passes on the
// wake-up it may have been given.
func (m *memory) resign() {
	left := m.word.Add(^uint64(oneWaiter - 1))
	if valueOf(left) > 0 && waitersOf(left) > 0 {
		m.wake(1)
	}
	runtime.KeepAlive(m)
}

// repair sets the value and wakes all.
func (m *memory) repair(value uint32) (was uint32) {
	raceRelease(m)
	for {
		word := m.word.Load()
		if m.word.CompareAndSwap(word, word&^uint64(oneWaiter-1)|uint64(value)) {
			m.wake(everybody)
			runtime.KeepAlive(m)
			return valueOf(word)
		}
	}
}

const everybody = 1<<31 - 1
