package sqlitestore

import (
	"errors"
	"os"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// On a full disk the write-ahead log can neither grow nor be carried over into a
// database that has to grow for it, and no restart helps. So blocks behind the end
// of the database are allocated beforehand (fallocate), and the log is carried over
// before it holds more new pages than fit into them.
const (
	mostReserved  = 1 << 20 // bytes
	leastReserved = 1 << 14
)

// A reserve is the blocks allocated behind the end of the database.
type reserve struct {
	database *os.File // of the owner; nil: there is none
	size     int64    // bytes allocated behind the end; 0: none
	short    bool     // the disk has too little room for all of it
}

// refill allocates the reserve behind the present end of the database. On a disk
// with little room it allocates less.
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
	r.short = room/4 < mostReserved
	for size := min(mostReserved, room/4); size >= leastReserved; size /= 2 {
		if allocate(r.database, info.Size(), size) == nil {
			r.size = size
			return
		}
	}
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

// checkpoint carries the log over into the database, so that it is reused from its
// beginning. It reports false if readers or a full disk prevent a part of it.
func (f *file) checkpoint() bool {
	done := f.carryOver("PASSIVE")
	if f.reserve.refill(); done && f.reserve.short {
		f.carryOver("TRUNCATE") // which waits for readers; the disk is small, and the log has the rest of it
		f.reserve.refill()
	}
	return done
}

func (f *file) carryOver(mode string) bool {
	var busy, pages, done int64
	err := f.query("PRAGMA wal_checkpoint("+mode+")", func(r *row) { busy, pages, done = r.integer(), r.integer(), r.integer() })
	return err == nil && busy == 0 && pages == done
}

// isFull reports whether an error is about a full disk.
func isFull(err error) bool {
	var failed *sqlite.Error
	return errors.As(err, &failed) && (failed.Code()&0xff == sqlite3.SQLITE_FULL || failed.Code() == sqlite3.SQLITE_IOERR_SHMSIZE)
}
