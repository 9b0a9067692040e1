package registry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/registry"
)

// file writes a configuration and returns its path.
func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.json")
	write(t, path, text)
	return path
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, r *registry.Registry, text string) error {
	t.Helper()
	return r.Load(file(t, text))
}

func mustLoad(t testing.TB, r *registry.Registry, text string) {
	t.Helper()
	if err := load(t, r, text); err != nil {
		t.Fatal(err)
	}
}

// wantPanic runs fn and returns the text of its panic, which must contain all parts.
func wantPanic(t *testing.T, fn func(), parts ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		text := fmt.Sprint(recover())
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("panic %q, want it to contain %q", text, part)
			}
		}
	}()
	fn()
}

func wantCapacity(t *testing.T, s interface{ Stats() sema.Stats }, want int64) {
	t.Helper()
	if got := s.Stats().Capacity; got != want {
		t.Errorf("capacity %d, want %d", got, want)
	}
}

// A stored gate is one that other processes use as well, as those of a fleet.
type stored struct {
	sema.Gate
	mu       sync.Mutex
	capacity int64
	fail     error
	sets     []int64
	drained  bool
}

type storedStats struct {
	sema.Stats
	Extra int
}

var errStore = errors.New("the store is away")

func (s *stored) Stats() storedStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return storedStats{Stats: sema.Stats{Capacity: s.capacity}, Extra: 7}
}

func (s *stored) Resize(_ context.Context, capacity int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sets = append(s.sets, capacity)
	if s.fail != nil {
		return s.fail
	}
	s.capacity = capacity
	return nil
}

func (s *stored) Drain(context.Context) error {
	s.drained = true
	return nil
}

// A journal collects log records as text.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.buf.String(), part)
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// noContext is a nil context, which is a mistake of the caller.
var noContext context.Context
