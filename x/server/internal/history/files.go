package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A log appends records to files in a directory: one file for each segment. A record has a length
// and a checksum, so that one that was written in part ends the file.
type log struct {
	directory, name string
	file            *os.File // nil: the last begin has failed
}

// magic is the first line of a file. Files of another version are ignored.
const magic = "sema history 1\n"

func (l *log) path(tick int64) string {
	return filepath.Join(l.directory, fmt.Sprintf("%s-%d.seg", l.name, tick))
}

// begin starts the file of a segment.
func (l *log) begin(tick int64) error {
	_ = l.close()
	return l.start(l.path(tick))
}

func (l *log) start(path string) (err error) {
	l.file, err = os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("write the history: %w", err)
	}
	if _, err = l.file.WriteString(magic); err != nil {
		return l.broken(err)
	}
	return nil
}

// append appends a record. After an error, the file ends: the next segment begins another one.
func (l *log) append(record []byte) error {
	if l.file == nil {
		return nil
	}
	framed := binary.LittleEndian.AppendUint32(nil, uint32(len(record)))
	framed = binary.LittleEndian.AppendUint32(framed, crc32.ChecksumIEEE(record))
	if _, err := l.file.Write(append(framed, record...)); err != nil {
		return l.broken(err)
	}
	return nil
}

func (l *log) broken(err error) error {
	_ = l.close()
	return fmt.Errorf("write the history: %w", err)
}

func (l *log) remove(tick int64) { _ = os.Remove(l.path(tick)) }

func (l *log) close() error {
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// read calls each with the records of a file, up to the first damaged one.
func read(path string, each func(record []byte) error) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	raw, ours := cutPrefix(raw, magic)
	if !ours {
		return fmt.Errorf("%s: not a history of this version: %w", path, errDamaged)
	}
	for len(raw) >= 8 {
		size, sum := int(binary.LittleEndian.Uint32(raw)), binary.LittleEndian.Uint32(raw[4:])
		if raw = raw[8:]; size > len(raw) || crc32.ChecksumIEEE(raw[:size]) != sum {
			return nil
		}
		if err := each(raw[:size]); err != nil {
			return err
		}
		raw = raw[size:]
	}
	return nil
}

func cutPrefix(raw []byte, prefix string) ([]byte, bool) {
	if len(raw) < len(prefix) || string(raw[:len(prefix)]) != prefix {
		return raw, false
	}
	return raw[len(prefix):], true
}

// load reads the segments of a directory, removes old ones, and appends new ones there.
func (r *ring) load(directory string, now time.Time) error {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return fmt.Errorf("open the history: %w", err)
	}
	file := &log{directory: directory, name: r.name}
	paths, err := filepath.Glob(filepath.Join(directory, r.name+"-*.seg"))
	if err != nil {
		return fmt.Errorf("open the history: %w", err)
	}
	var ticks []int64
	for _, path := range paths {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), r.name+"-"), ".seg")
		if tick, err := strconv.ParseInt(text, 10, 64); err == nil {
			ticks = append(ticks, tick)
		}
	}
	slices.Sort(ticks)
	for _, tick := range ticks {
		old := now.Sub(r.timeOf(tick+segmentTicks)) > r.keep
		if old || r.timeOf(tick).After(now) { // the clock has stepped back
			file.remove(tick)
			continue
		}
		if err := r.loadSegment(file.path(tick), tick); err != nil && !errors.Is(err, errDamaged) {
			return fmt.Errorf("open the history: %w", err)
		}
	}
	r.file = file
	return nil
}

var errDamaged = errors.New("damaged record")

// loadSegment reads the file of a segment. The next sample begins another segment.
func (r *ring) loadSegment(path string, tick int64) error {
	s := &segment{first: tick, last: tick, chunks: map[string]*chunk{}}
	err := read(path, func(record []byte) error { return r.replay(s, record) })
	if len(s.chunks) == 0 {
		_ = os.Remove(path)
		return err
	}
	r.segments = append(r.segments, s)
	r.last = max(r.last, s.last)
	r.seal(s)
	return err
}

// replay adds a record to a segment.
func (r *ring) replay(s *segment, record []byte) error {
	in := reader{record}
	tick := in.varint()
	if tick < s.last || tick-s.first >= segmentTicks {
		return errDamaged
	}
	for len(in.left) > 0 {
		id := int(in.uvarint())
		if id == len(s.names) {
			s.names = append(s.names, in.text())
			s.chunks[s.names[id]] = &chunk{id: id, tick: s.first}
		}
		if id > len(s.names)-1 || id < 0 {
			return errDamaged
		}
		c := s.chunks[s.names[id]]
		now := c.last
		changed := in.uvarint()
		for i := range now {
			if changed&(1<<i) != 0 {
				now[i] += in.varint()
			}
		}
		r.buffer = r.buffer[:0]
		r.write(s, s.names[id], c, tick, changed, now)
		c.present = changed&absent == 0
	}
	s.last = tick
	return nil
}

// A reader reads numbers. It reads zeros after the end.
type reader struct{ left []byte }

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.left)
	r.skip(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.left)
	r.skip(n)
	return v
}

func (r *reader) text() string {
	n := int(min(r.uvarint(), uint64(len(r.left))))
	text := string(r.left[:n])
	r.left = r.left[n:]
	return text
}

func (r *reader) skip(n int) {
	if n <= 0 {
		n = len(r.left) // the number is incomplete: the rest is useless
	}
	r.left = r.left[n:]
}
