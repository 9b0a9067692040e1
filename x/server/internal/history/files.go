package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
	for len(raw) >= frameHead {
		size, sum := binary.LittleEndian.Uint32(raw), binary.LittleEndian.Uint32(raw[4:])
		raw = raw[frameHead:]
		if uint64(size) > uint64(len(raw)) || crc32.ChecksumIEEE(raw[:size]) != sum {
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

// load reads the segments of a directory, removes old ones, and appends new ones there. Segments
// of the future stay, unread: the clock may be wrong until it is synchronised.
func (r *ring) load(directory string, now time.Time) error {
	file := &log{directory: directory, name: r.name}
	entries, err := os.ReadDir(directory) // filepath.Glob would take characters of the directory's name for a pattern
	if err != nil {
		return fmt.Errorf("open the history: %w", err)
	}
	var ticks []int64
	for _, e := range entries {
		text, ours := strings.CutPrefix(e.Name(), r.name+"-")
		text, whole := strings.CutSuffix(text, ".seg")
		if tick, err := strconv.ParseInt(text, 10, 64); err == nil && ours && whole && tick >= 0 {
			ticks = append(ticks, tick)
		}
	}
	slices.Sort(ticks)
	for _, tick := range ticks {
		switch {
		case r.timeOf(tick).After(now):
			r.ahead = append(r.ahead, tick)
			continue
		case now.Sub(r.timeOf(tick+segmentTicks)) > r.keep:
			file.remove(tick)
			continue
		}
		if err := r.loadSegment(file.pathOf(tick), tick); err != nil && !errors.Is(err, errDamaged) {
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
		if err == nil || errors.Is(err, errDamaged) {
			_ = os.Remove(path)
		}
		return err
	}
	if n := len(r.segments); n > 0 && r.segments[n-1].last >= tick { // the clock had stepped back
		r.segments[n-1].last = tick - 1
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
		id := in.uvarint()
		if id == uint64(len(s.names)) {
			s.names = append(s.names, in.text())
			s.chunks[s.names[id]] = &chunk{id: int(id), tick: s.first}
		}
		if id >= uint64(len(s.names)) {
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

// replace writes a file so that a crash leaves either its old content or the new one.
func replace(path string, content []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		_ = os.Remove(temporary)
	}
	return err
}

// missing reports whether an error of a read means that there is nothing to keep: no file, or one
// of another version.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) }
