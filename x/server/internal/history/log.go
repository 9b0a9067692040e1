package history

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// magic is the first line of a file. Files of another version are ignored.
const magic = "sema history 1\n"

// mostPending bounds the bytes that wait to be written. A segment of 2,000 semaphores that all
// change with each sample has about 2.5 MiB.
const mostPending = 4 << 20

// A log appends records to files in a directory: one file for each segment. A record has a length
// and a checksum, so that one that was written in part ends the file. What could not be written
// is kept, and written before the next record.
type log struct {
	directory, name string

	path    string   // of the current file; "": none
	file    *os.File // nil: to be opened
	good    int64    // bytes of the file that are whole records
	pending []byte   // follow them
	skip    bool     // too much was pending: the rest of the segment is not written
	err     error    // why the current file is incomplete; nil: it is complete
}

func (l *log) pathOf(tick int64) string {
	return filepath.Join(l.directory, fmt.Sprintf("%s-%d.seg", l.name, tick))
}

// begin starts the file of a segment. What is pending of the last one is dropped.
func (l *log) begin(tick int64) {
	_ = l.close()
	l.path, l.good, l.skip = l.pathOf(tick), 0, false
	l.pending = append(l.pending[:0], magic...)
}

// append appends a record.
func (l *log) append(record []byte) {
	if l.path != "" && !l.skip {
		l.pending = frame(l.pending, record)
		l.flush()
	}
}

// frameHead is the size of what frame adds to a record.
const frameHead = 8

// frame appends a record with its length and checksum.
func frame(to, record []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, uint32(len(record)))
	to = binary.LittleEndian.AppendUint32(to, crc32.ChecksumIEEE(record))
	return append(to, record...)
}

// flush writes what is pending. After a failed write it writes the same bytes to the same place.
func (l *log) flush() {
	if len(l.pending) == 0 {
		return
	}
	if err := l.write(); err != nil {
		_ = l.close() // the next try opens it again, because the directory may be another one
		l.err = fmt.Errorf("write the history: %w", err)
		if l.skip = l.skip || len(l.pending) > mostPending; l.skip {
			l.pending = nil
		}
		return
	}
	l.good += int64(len(l.pending))
	l.pending, l.err = l.pending[:0], nil
}

func (l *log) write() error {
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		l.file = f
		info, err := f.Stat()
		switch {
		case err != nil:
			return err
		case info.Size() < l.good:
			l.skip = true
			return fmt.Errorf("%s has %d bytes, %d were written", l.path, info.Size(), l.good)
		case info.Size() > l.good: // a record in part, or the file of a time to which the clock stepped back
			if err := f.Truncate(l.good); err != nil {
				return err
			}
		}
	}
	_, err := l.file.WriteAt(l.pending, l.good)
	return err
}

func (l *log) remove(tick int64) {
	path := l.pathOf(tick)
	if path == l.path {
		_ = l.close()
		l.path, l.pending = "", nil
	}
	_ = os.Remove(path)
}

func (l *log) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}
