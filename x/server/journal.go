package server

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A journal logs events that an attacker or a fault can cause at any rate. It writes at
// most journalBurst lines of a kind per journalPeriod. The next line reports how many were
// suppressed.
type journal struct {
	log *slog.Logger

	mu    sync.Mutex
	kinds map[string]*journalKind // a fixed set
}

type journalKind struct {
	since      time.Time
	lines      int
	suppressed int64
}

const (
	journalBurst  = 5
	journalPeriod = 10 * time.Second
)

func newJournal(log *slog.Logger) *journal {
	return &journal{log: log, kinds: map[string]*journalKind{}}
}

func (j *journal) warn(kind, message string, args ...any) {
	j.write(slog.LevelWarn, kind, message, args...)
}

func (j *journal) error(kind, message string, args ...any) {
	j.write(slog.LevelError, kind, message, args...)
}

func (j *journal) write(level slog.Level, kind, message string, args ...any) {
	suppressed, ok := j.admit(kind, time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	j.log.Log(context.Background(), level, message, args...)
}

// admit reports whether a line may be written now, and how many lines were suppressed
// before it.
func (j *journal) admit(kind string, now time.Time) (suppressed int64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.kinds[kind]
	if k == nil {
		k = &journalKind{since: now}
		j.kinds[kind] = k
	}
	if now.Sub(k.since) >= journalPeriod {
		k.since, k.lines = now, 0
	}
	if k.lines == journalBurst {
		k.suppressed++
		return 0, false
	}
	k.lines++
	suppressed, k.suppressed = k.suppressed, 0
	return suppressed, true
}

// ErrorLog returns a logger for [http.Server.ErrorLog]: it logs connections that cannot be
// accepted, failed handshakes, and panics.
func (s *Server) ErrorLog() *log.Logger { return log.New(connectionLog{s.service.journal}, "", 0) }

type connectionLog struct{ journal *journal }

// Write logs a line of package net/http, classified by its text.
func (c connectionLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	switch {
	case strings.Contains(text, "Accept error"):
		c.journal.error("accept", "a connection was not accepted", "error", text)
	case strings.Contains(text, "TLS handshake error"):
		c.journal.warn("handshake", "a TLS handshake failed", "error", text)
	default:
		c.journal.warn("connection", "a connection failed", "error", text)
	}
	return len(line), nil
}
