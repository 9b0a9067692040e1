package sqlitestore

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sema-go/sema/fleet"
)

// Ping is for [fleet.Examiner]. The writer answers, and the clock is this
// machine's.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.await(ctx, &request{ctx: ctx, size: 1, read: func(*file) error {
		now = time.Now()
		return nil
	}})
	return now, err
}

// Examine is for [fleet.Examiner].
func (s *Store) Examine(ctx context.Context) ([]fleet.Finding, error) {
	var version, whole fleet.Finding
	err := s.await(ctx, &request{ctx: ctx, size: 1, read: func(f *file) (err error) {
		version, whole, err = f.examine(s.engine.path)
		return err
	}})
	if err != nil {
		return nil, err
	}
	if whole.Level == fleet.LevelOK {
		whole.Seen += ", and this process owns it"
	}
	persistence := fleet.Finding{Check: "persistence", Level: fleet.LevelOK, Seen: "synchronous is full: what was acknowledged is on the disk"}
	if s.engine.normal {
		persistence = fleet.Finding{Check: "persistence", Level: fleet.LevelWarning,
			Seen: "synchronous is normal: after a loss of power the last of what was acknowledged may be gone", Advice: "leave synchronous=normal out of the URL, or wait for a TTL before it is started again"}
	}
	return []fleet.Finding{version, whole, persistence, logFinding(s.engine.path)}, nil
}

// examine returns findings about the version and about damage of a file.
func (f *file) examine(path string) (version, whole fleet.Finding, err error) {
	var number, damage string
	if err := f.query("SELECT sqlite_version()", func(r *row) { number = r.text() }); err != nil {
		return version, whole, err
	}
	if err := f.query("PRAGMA quick_check(1)", func(r *row) { damage = r.text() }); err != nil {
		return version, whole, err
	}
	version = fleet.Finding{Check: "version", Level: fleet.LevelOK, Seen: fmt.Sprintf("SQLite %s, schema %d", number, schemaVersion)}
	whole = fleet.Finding{Check: "file", Level: fleet.LevelOK, Seen: path + " is whole"}
	if damage != "ok" {
		whole = fleet.Finding{Check: "file", Level: fleet.LevelProblem, Seen: path + " is damaged: " + damage, Advice: "restore it, or name another one; wait for a TTL before"}
	}
	return version, whole, nil
}

// logFinding is about the write-ahead log, which grows under readers that keep a
// transaction open.
func logFinding(path string) fleet.Finding {
	const long = 64 << 20
	info, err := os.Stat(path + "-wal")
	switch {
	case err != nil:
		return fleet.Finding{Check: "log", Level: fleet.LevelOK, Seen: "the write-ahead log is empty"}
	case info.Size() > long:
		return fleet.Finding{Check: "log", Level: fleet.LevelWarning, Seen: fmt.Sprintf("the write-ahead log has %d MB: a process reads the file in a long transaction", info.Size()>>20), Advice: "find the process that has it open (fuser) and end its transaction"}
	}
	return fleet.Finding{Check: "log", Level: fleet.LevelOK, Seen: fmt.Sprintf("the write-ahead log has %d KB", info.Size()>>10)}
}
