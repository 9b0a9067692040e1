package sqlitestore

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sema-go/sema/fleet"
)

// Ping implements [fleet.Examiner]. It makes a round trip to the writer and returns the
// time of this machine.
func (s *Store) Ping(ctx context.Context) (time.Time, error) {
	var now time.Time
	err := s.await(ctx, &request{ctx: ctx, size: 1, read: func(*file) error {
		now = time.Now()
		return nil
	}})
	return now, err
}

// Examine implements [fleet.Examiner].
func (s *Store) Examine(ctx context.Context) ([]fleet.Finding, error) {
	var version, integrity fleet.Finding
	err := s.await(ctx, &request{ctx: ctx, size: 1, read: func(f *file) (err error) {
		version, integrity, err = f.examine(s.shared.path)
		return err
	}})
	if err != nil {
		return nil, err
	}
	if integrity.Level == fleet.LevelOK {
		integrity.Seen += ", and this process owns it"
	}
	persistence := fleet.Finding{Check: "persistence", Level: fleet.LevelOK, Seen: "synchronous is full: acknowledged operations are on the disk"}
	if s.shared.normal {
		persistence = fleet.Finding{Check: "persistence", Level: fleet.LevelWarning,
			Seen: "synchronous is normal: the last acknowledged operations may be lost on a power failure", Advice: "remove synchronous=normal from the URL, or wait for a TTL before the store is started again"}
	}
	return []fleet.Finding{version, integrity, persistence, logFinding(s.shared.path)}, nil
}

// examine returns findings about the version and the integrity of a file.
func (f *file) examine(path string) (version, integrity fleet.Finding, err error) {
	var number, damage string
	if err := f.query("SELECT sqlite_version()", func(r *row) { number = r.text() }); err != nil {
		return version, integrity, err
	}
	if err := f.query("PRAGMA quick_check(1)", func(r *row) { damage = r.text() }); err != nil {
		return version, integrity, err
	}
	version = fleet.Finding{Check: "version", Level: fleet.LevelOK, Seen: fmt.Sprintf("SQLite %s, schema %d", number, schemaVersion)}
	integrity = fleet.Finding{Check: "file", Level: fleet.LevelOK, Seen: path + " is intact"}
	if damage != "ok" {
		integrity = fleet.Finding{Check: "file", Level: fleet.LevelProblem, Seen: path + " is damaged: " + damage, Advice: "stop this program, move the file away, wait for the longest TTL of its semaphores, and start again with a new file"}
	}
	return version, integrity, nil
}

// logFinding returns a finding about the write-ahead log, which grows while readers keep
// a transaction open.
func logFinding(path string) fleet.Finding {
	const long = 64 << 20
	info, err := os.Stat(path + "-wal")
	switch {
	case err != nil:
		return fleet.Finding{Check: "log", Level: fleet.LevelOK, Seen: "the write-ahead log is empty"}
	case info.Size() > long:
		return fleet.Finding{Check: "log", Level: fleet.LevelWarning, Seen: fmt.Sprintf("the write-ahead log has %d MB: a process reads the file in a long transaction", info.Size()>>20), Advice: "find the process that has the file open (fuser) and end its transaction"}
	}
	return fleet.Finding{Check: "log", Level: fleet.LevelOK, Seen: fmt.Sprintf("the write-ahead log has %d KB", info.Size()>>10)}
}
