//go:build linux

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/sema-go/sema/host/posix"
)

// The layout of the mapping is that of struct buffer in c/peer.c.
const (
	capacity = 8
	semSize  = 32 // sizeof(sem_t)
	putAt    = 3 * semSize
	takenAt  = putAt + 4
	itemsAt  = takenAt + 4
	size     = itemsAt + 4*capacity
)

// A buffer is the bounded buffer in shared memory. The semaphore empty counts its free
// places and full those with an item: their sum is the capacity, less the callers between
// the two semaphores.
type buffer struct {
	empty, full, mutex *posix.Semaphore
	memory             []byte
}

// create creates the file and maps it.
func create(path string) (*buffer, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		return nil, err
	}
	b := &buffer{}
	b.memory, err = syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	for _, s := range []struct {
		at    int
		value uint32
		sem   **posix.Semaphore
	}{{0, capacity, &b.empty}, {semSize, 0, &b.full}, {2 * semSize, 1, &b.mutex}} {
		if *s.sem, err = posix.Init(b.memory[s.at:], s.value); err != nil {
			syscall.Munmap(b.memory)
			return nil, err
		}
	}
	return b, nil
}

// close unmaps the memory. No call of another method may be in progress.
func (b *buffer) close() {
	for _, s := range []*posix.Semaphore{b.empty, b.full, b.mutex} {
		s.Close()
	}
	syscall.Munmap(b.memory)
}

// produce puts the items of an interval.
func (b *buffer) produce(ctx context.Context, from, to int) error {
	for i := from; i < to; i++ {
		if err := b.empty.Wait(ctx); err != nil {
			return err
		}
		if err := b.mutex.Wait(ctx); err != nil {
			return err
		}
		b.setWord(itemsAt+4*(b.advance(putAt)%capacity), uint32(i))
		b.mutex.Post()
		b.full.Post()
	}
	return nil
}

// consume takes items and returns them.
func (b *buffer) consume(ctx context.Context, items int) (taken []int, err error) {
	for range items {
		if err := b.full.Wait(ctx); err != nil {
			return nil, err
		}
		if err := b.mutex.Wait(ctx); err != nil {
			return nil, err
		}
		taken = append(taken, int(b.word(itemsAt+4*(b.advance(takenAt)%capacity))))
		b.mutex.Post()
		b.empty.Post()
	}
	return taken, nil
}

// untilTaken waits until an item has been taken.
func (b *buffer) untilTaken(ctx context.Context) error {
	for taken := false; !taken; time.Sleep(time.Millisecond) {
		if err := b.mutex.Wait(ctx); err != nil {
			return err
		}
		taken = b.word(takenAt) > 0
		b.mutex.Post()
	}
	return nil
}

// advance adds 1 to a counter of the mapping, and returns its value before that. The
// caller holds the mutex.
func (b *buffer) advance(at int) int {
	value := b.word(at)
	b.setWord(at, value+1)
	return int(value)
}

func (b *buffer) word(at int) uint32 { return binary.NativeEndian.Uint32(b.memory[at:]) }

func (b *buffer) setWord(at int, value uint32) { binary.NativeEndian.PutUint32(b.memory[at:], value) }
