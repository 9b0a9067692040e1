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
func (s *Store) Examine(ctx context.Context) (all []fleet.Finding, err error) {
	var version, damage string
	err = s.await(ctx, &request{ctx: ctx, size: 1, read: func(f *file) error {
		if err := f.query("SELECT sqlite_version()", func(r *row) { version = r.text() }); err != nil {
			return err
		}
		return f.query("PRAGMA quick_check(1)", func(r *row) { damage = r.text() })
	}})
	if err != nil {
		return nil, err
	}
	all = []fleet.Finding{
		{Check: "version", Level: fleet.Fine, Seen: fmt.Sprintf("SQLite %s, schema %d", version, schemaVersion)},
		{Check: "file", Level: fleet.Fine, Seen: s.engine.path + " is whole, and this process owns it"},
		{Check: "persistence", Level: fleet.Fine, Seen: "synchronous is full: what was acknowledged is on the disk"},
		s.logFinding(),
	}
	if damage != "ok" {
		all[1] = fleet.Finding{Check: "file", Level: fleet.Problem, Seen: s.engine.path + " is damaged: " + damage, Advice: "restore it, or name another one; wait for a TTL before"}
	}
	if s.engine.normal {
		all[2] = fleet.Finding{Check: "persistence", Level: fleet.Warning,
			Seen: "synchronous is normal: after a loss of power the last of what was acknowledged may be gone", Advice: "leave synchronous=normal out of the URL, or wait for a TTL before it is started again"}
	}
	return all, nil
}

// logFinding is about the write-ahead log, which grows under readers who keep a
// transaction open.
func (s *Store) logFinding() fleet.Finding {
	const long = 64 << 20
	info, err := os.Stat(s.engine.path + "-wal")
	switch {
	case err != nil:
		return fleet.Finding{Check: "log", Level: fleet.Fine, Seen: "the write-ahead log is empty"}
	case info.Size() > long:
		return fleet.Finding{Check: "log", Level: fleet.Warning, Seen: fmt.Sprintf("the write-ahead log has %d MB: somebody reads the file in a long transaction", info.Size()>>20), Advice: "find who has it open (fuser) and end that"}
	}
	return fleet.Finding{Check: "log", Level: fleet.Fine, Seen: fmt.Sprintf("the write-ahead log has %d KB", info.Size()>>10)}
}
