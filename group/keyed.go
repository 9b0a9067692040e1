package group

import (
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/sema-go/sema"
)

// Keyed bounds calls of the same kind: at most so many at once for each key, such as a
// customer, a host or a type of job. Create it with [NewKeyed]. It is safe for concurrent
// use.
//
// Keys need not be declared. A key without permits and waiters is forgotten when the
// garbage collector runs, so that any number of keys may come and go.
type Keyed struct {
	opts []sema.Option
	name string

	capacity int64
	byKey    *sync.Map // string → weak.Pointer[sema.Semaphore]; it shrinks, unlike a map

	mu   sync.Mutex                 // serialises the creation of semaphores, and guards kept
	kept map[string]*sema.Semaphore // those of keys that were set
}

// NewKeyed returns a semaphore for each key, of the same capacity and options. The option
// [sema.Name] names them: "name/key". It panics if capacity is negative.
func NewKeyed(capacity int64, opts ...sema.Option) *Keyed {
	if capacity < 0 {
		panic(fmt.Sprintf("group: NewKeyed(%d): capacity is negative; use 0 to pause", capacity))
	}
	return &Keyed{
		opts: opts, name: sema.SettingsOf(opts...).Name, capacity: capacity,
		byKey: new(sync.Map), kept: map[string]*sema.Semaphore{},
	}
}

// Of returns the semaphore of a key. What a caller does to it other than by permits, such as
// Resize, Drain or Close, is forgotten together with the key: use Set for what is to last.
func (k *Keyed) Of(key string) *sema.Semaphore {
	if s := k.find(key); s != nil {
		return s
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ofLocked(key)
}

// find returns the semaphore of a key, or nil if there is none any more.
func (k *Keyed) find(key string) *sema.Semaphore {
	if p, ok := k.byKey.Load(key); ok {
		return p.(weak.Pointer[sema.Semaphore]).Value()
	}
	return nil
}

// ofLocked returns the semaphore of a key, and creates it if there is none.
func (k *Keyed) ofLocked(key string) *sema.Semaphore {
	if s := k.find(key); s != nil {
		return s
	}
	opts := k.opts
	if k.name != "" {
		opts = append(slices.Clip(opts), sema.Name(k.name+"/"+key))
	}
	s := sema.New(k.capacity, opts...)
	p := weak.Make(s)
	k.byKey.Store(key, p)
	// Permits and waiters keep the semaphore. Without them it is as good as a new one.
	runtime.AddCleanup(s, func(byKey *sync.Map) { byKey.CompareAndDelete(key, p) }, k.byKey)
	return s
}

// Set sets the capacity of one key, at any time. A key that was set is kept. It panics if
// capacity is negative.
func (k *Keyed) Set(key string, capacity int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.ofLocked(key)
	s.Resize(capacity)
	k.kept[key] = s
}

// All yields the keys that are in use or were set, with their semaphores, in no particular
// order.
func (k *Keyed) All() iter.Seq2[string, *sema.Semaphore] {
	return func(yield func(string, *sema.Semaphore) bool) {
		for key := range k.byKey.Range {
			if s := k.find(key.(string)); s != nil && !yield(key.(string), s) {
				return
			}
		}
	}
}
