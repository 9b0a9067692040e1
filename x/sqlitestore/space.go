package sqlitestore

import (
	"errors"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// On a full disk the write-ahead log cannot grow. It cannot be checkpointed either if
// the database has to grow for that, and no restart helps. So blocks beyond the end of
// the database are allocated in advance (fallocate). The log is checkpointed before it
// contains more new pages than fit into them.
const (
	maxReserve = 1 << 20 // bytes
	minReserve = 1 << 14
)

// A reserve is the space allocated beyond the end of the database.
type reserve struct {
	database *os.File // descriptor of the owner; nil: no reserve
	size     int64    // bytes allocated beyond the end; 0: none
	short    bool     // the disk has too little space for the whole reserve
}

// refill allocates the reserve beyond the current end of the database. On a disk with
// little space it allocates less.
func (r *reserve) refill() {
	r.size, r.short = 0, false
	if r.database == nil {
		return
	}
	info, err := r.database.Stat()
	if err != nil {
		return
	}
	room, err := free(r.database)
	if err != nil {
		return
	}
	r.short = room/4 < maxReserve
	for size := min(maxReserve, room/4); size >= minReserve; size /= 2 {
		if allocate(r.database, info.Size(), size) == nil {
			r.size = size
			return
		}
	}
}

// release frees the reserve. SQLite must not have the file open.
func (r *reserve) release() {
	if info, err := r.database.Stat(); err == nil {
		r.database.Truncate(info.Size())
	}
}

// bytesPerOp is an estimate of the bytes that an op adds to the database, with its results.
const bytesPerOp = 1 << 10

// isLow reports whether the reserve may be used up soon. It checks only after enough
// ops to use up a quarter of the reserve.
func (w *writer) isLow() bool {
	if int64(w.opsSinceCheck)*bytesPerOp < w.file.reserve.size/4 {
		return false
	}
	w.opsSinceCheck = 0
	return w.file.isLow()
}

// isLow reports whether the new pages in the log use more than half of the reserve.
func (f *file) isLow() bool {
	if f.reserve.size == 0 {
		return false
	}
	info, err := f.reserve.database.Stat()
	if err != nil {
		return false
	}
	var bytes int64
	err = f.size.findBy(nil, func(r *row) { bytes = r.integer() })
	return err == nil && bytes-info.Size() > f.reserve.size/2
}

// checkpoint writes the log back into the database, so that the log is reused from its
// beginning. It reports false if readers or a full disk prevent a part of it.
func (f *file) checkpoint() bool {
	done := f.runCheckpoint("PASSIVE")
	if f.reserve.refill(); done && f.reserve.short {
		f.runCheckpoint("TRUNCATE") // frees the disk space of the log, which the reserve needs; waits for readers
		f.reserve.refill()
	}
	return done
}

func (f *file) runCheckpoint(mode string) bool {
	var busy, pages, done int64
	err := f.query("PRAGMA wal_checkpoint("+mode+")", func(r *row) { busy, pages, done = r.integer(), r.integer(), r.integer() })
	return err == nil && busy == 0 && pages == done
}

// isFull reports whether err is the error for a full disk.
func isFull(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && (failed.Code()&0xff == sqlite3.SQLITE_FULL || failed.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}
