package memstore

import (
	"fmt"
	"log/slog"
)

// String returns the number of semaphores.
func (s *Store) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("memory store of %d semaphores", len(s.semaphores))
}

// GoString implements [fmt.GoStringer].
func (s *Store) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer].
func (s *Store) LogValue() slog.Value { return slog.StringValue(s.String()) }
