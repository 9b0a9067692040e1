//go:build !386 && !arm && !mips && !mipsle

package posix_test

import (
	"context"
	"errors"
	"io/fs"
	"testing"

	"pgregory.net/rapid"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/host/posix"
)

// A number is the model of a semaphore, and a handle an open one.
type (
	number struct{ value uint32 }
	handle struct {
		*posix.Semaphore
		number *number
		closed bool
		unlink bool
	}
)

// TestSemaphore_BehavesLikeItsModel opens, uses, unlinks and creates semaphores of two
// names in random order, and compares them with numbers.
func TestSemaphore_BehavesLikeItsModel(t *testing.T) {
	t.Parallel()
	names := []string{uniqueName(t), uniqueName(t)}
	ended, end := context.WithCancel(context.Background())
	end()
	rapid.Check(t, func(t *rapid.T) {
		linked := map[string]*number{}
		var handles []*handle
		for _, name := range names {
			posix.Unlink(name)
		}
		anyName := func(t *rapid.T) string { return rapid.SampledFrom(names).Draw(t, "name") }
		anyHandle := func(t *rapid.T) *handle {
			if len(handles) == 0 {
				t.Skip("no semaphore is open")
			}
			return rapid.SampledFrom(handles).Draw(t, "handle")
		}
		expect := func(t *rapid.T, err, want error) {
			if !errors.Is(err, want) {
				t.Fatalf("error %v, want %v", err, want)
			}
		}
		expectUnlessClosed := func(t *rapid.T, h *handle, err, want error) {
			if h.closed {
				want = sema.ErrClosed
			}
			expect(t, err, want)
		}
		anyValue := rapid.OneOf(rapid.Uint32Range(0, 3), rapid.Just[uint32](posix.MaxValue))
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				name, value, exclusive := anyName(t), anyValue.Draw(t, "value"), rapid.Bool().Draw(t, "exclusive")
				s, err := posix.Create(name, 0o600, value, exclusive)
				if linked[name] != nil && exclusive {
					expect(t, err, fs.ErrExist)
					return
				}
				expect(t, err, nil)
				if linked[name] == nil {
					linked[name] = &number{value}
				}
				handles = append(handles, &handle{Semaphore: s, number: linked[name]})
			},
			"open": func(t *rapid.T) {
				name := anyName(t)
				s, err := posix.Open(name)
				if linked[name] == nil {
					expect(t, err, fs.ErrNotExist)
					return
				}
				expect(t, err, nil)
				handles = append(handles, &handle{Semaphore: s, number: linked[name]})
			},
			"unlink": func(t *rapid.T) {
				name := anyName(t)
				want := error(nil)
				if linked[name] == nil {
					want = fs.ErrNotExist
				}
				expect(t, posix.Unlink(name), want)
				delete(linked, name)
			},
			"close": func(t *rapid.T) {
				h := anyHandle(t)
				if rapid.Bool().Draw(t, "unlink") {
					h.UnlinkOnClose()
					h.unlink = true
				}
				expect(t, h.Close(), nil)
				if h.unlink && !h.closed && linked[h.Name()] == h.number {
					delete(linked, h.Name())
				}
				h.closed = true
			},
			"wait": func(t *rapid.T) {
				h := anyHandle(t)
				if !h.closed && h.number.value == 0 {
					t.Skip("would wait")
				}
				expectUnlessClosed(t, h, h.Wait(context.Background()), nil)
				if !h.closed {
					h.number.value--
				}
			},
			"wait with ended context": func(t *rapid.T) { expect(t, anyHandle(t).Wait(ended), context.Canceled) },
			"try": func(t *rapid.T) {
				h := anyHandle(t)
				got, want := h.TryWait(), !h.closed && h.number.value > 0
				if got != want {
					t.Fatalf("try: %t, want %t", got, want)
				}
				if got {
					h.number.value--
				}
			},
			"post": func(t *rapid.T) {
				h := anyHandle(t)
				if h.number.value == posix.MaxValue {
					expectUnlessClosed(t, h, h.Post(), sema.ErrOverRelease)
					return
				}
				expectUnlessClosed(t, h, h.Post(), nil)
				if !h.closed {
					h.number.value++
				}
			},
			"repair": func(t *rapid.T) {
				h, value := anyHandle(t), anyValue.Draw(t, "value")
				was, err := h.Repair(value)
				expectUnlessClosed(t, h, err, nil)
				if h.closed {
					return
				}
				if was != h.number.value {
					t.Fatalf("was %d, want %d", was, h.number.value)
				}
				h.number.value = value
			},
			"": func(t *rapid.T) {
				for _, h := range handles {
					want := h.number.value
					if h.closed {
						want = 0
					}
					if h.Value() != want || h.Waiters() != 0 {
						t.Fatalf("value %d and %d waiters, want %d and none", h.Value(), h.Waiters(), want)
					}
				}
			},
		})
	})
}
