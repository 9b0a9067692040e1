package history

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

const (
	// segmentTicks is the number of samples in a segment.
	segmentTicks = 60
	// longestPause is the number of ticks without a sample after which a new segment begins: what
	// happened meanwhile is unknown.
	longestPause = 3
	// overhead is the memory of a chunk besides its data and its name, and of its place in the map.
	overhead = 200
)

// A ring contains the samples of one interval, oldest segment first.
type ring struct {
	name     string
	step     time.Duration
	keep     time.Duration
	last     int64 // tick of the last sample; 0: none
	segments []*segment
	ahead    []int64 // first ticks of segments in the directory that are of the future; ascending
	bytes    int64
	file     *log // nil: memory only
	buffer   []byte
}

func newRing(name string, step, keep time.Duration) *ring {
	return &ring{name: name, step: step, keep: keep}
}

// A segment contains up to segmentTicks samples of all semaphores. A tick is a time divided by the
// interval.
type segment struct {
	first, last int64
	chunks      map[string]*chunk
	names       []string // in the order in which the segment's file declares them
	bytes       int64
	sealed      bool // no samples are added
}

// A chunk contains the samples of one semaphore in one segment: for each change, the number of
// ticks since the last one, the fields that have changed, and their differences.
type chunk struct {
	id      int // place in names
	data    []byte
	tick    int64 // of the last entry
	last    values
	present bool  // false: the semaphore has ended
	seen    int64 // tick of the last sample with the semaphore
}

// The values of a sample in the order of their fields, durations as the number of a bucket.
type values [10]int64

// absent marks an entry for a semaphore that has ended.
const absent = 1 << len(values{})

// record adds the samples of a tick. It replaces samples of that tick and later.
func (r *ring) record(tick int64, samples map[string]Sample) {
	if tick <= r.last {
		r.cut(tick)
	}
	s := r.current()
	if s == nil || tick-s.first >= segmentTicks || tick-s.last > longestPause {
		s = r.begin(tick)
	}
	r.buffer = binary.AppendVarint(r.buffer[:0], tick)
	for name, sample := range samples {
		r.add(s, name, tick, valuesOf(sample))
	}
	for name, c := range s.chunks {
		if c.present && c.seen != tick {
			r.write(s, name, c, tick, absent, c.last)
			c.present = false
		}
	}
	s.last, r.last = tick, tick
	if r.file != nil {
		r.file.append(r.buffer)
	}
}

// cut drops the samples of a tick and later: the clock had shown a wrong time, and has stepped
// back. The segments stay in order of time.
func (r *ring) cut(tick int64) {
	if s := r.current(); s != nil {
		r.seal(s)
	}
	for n := len(r.segments); n > 0 && r.segments[n-1].first >= tick; n-- {
		r.remove(n - 1)
	}
	if n := len(r.segments); n > 0 {
		r.segments[n-1].last = min(r.segments[n-1].last, tick-1)
	}
}

// current returns the segment to which samples are added; nil: there is none.
func (r *ring) current() *segment {
	if n := len(r.segments); n > 0 && !r.segments[n-1].sealed {
		return r.segments[n-1]
	}
	return nil
}

// begin seals the current segment and begins another one.
func (r *ring) begin(tick int64) *segment {
	names := 0
	if s := r.current(); s != nil {
		names = len(s.chunks)
		r.seal(s)
	}
	s := &segment{first: tick, last: tick, chunks: make(map[string]*chunk, names)}
	r.segments = append(r.segments, s)
	if r.file != nil {
		for ; len(r.ahead) > 0 && r.ahead[0] < tick+segmentTicks; r.ahead = r.ahead[1:] {
			r.file.remove(r.ahead[0])
		}
		r.file.begin(tick)
	}
	return s
}

// seal releases the memory that a segment has reserved.
func (r *ring) seal(s *segment) {
	for _, c := range s.chunks {
		c.data = slices.Clone(c.data)
	}
	s.names, s.sealed = nil, true
	before := s.bytes
	s.bytes = 0
	for name, c := range s.chunks {
		s.bytes += overhead + int64(len(name)+cap(c.data))
	}
	r.bytes += s.bytes - before
}

// add adds a sample of a semaphore, unless it is unchanged.
func (r *ring) add(s *segment, name string, tick int64, now values) {
	c := s.chunks[name]
	isNew := c == nil
	if isNew {
		c = &chunk{id: len(s.names), tick: s.first}
		s.chunks[name] = c
		s.names = append(s.names, name)
		s.bytes += overhead + int64(len(name))
		r.bytes += overhead + int64(len(name))
	}
	c.seen = tick
	var changed uint64
	for i := range now {
		if now[i] != c.last[i] {
			changed |= 1 << i
		}
	}
	if changed != 0 || isNew || !c.present {
		r.write(s, name, c, tick, changed, now)
	}
	c.present = true
}

// write appends an entry to a chunk and to the record for the file.
func (r *ring) write(s *segment, name string, c *chunk, tick int64, changed uint64, now values) {
	r.buffer = binary.AppendUvarint(r.buffer, uint64(c.id))
	if c.data == nil { // the first entry declares the name
		r.buffer = binary.AppendUvarint(r.buffer, uint64(len(name)))
		r.buffer = append(r.buffer, name...)
	}
	from := len(r.buffer)
	r.buffer = binary.AppendUvarint(r.buffer, changed)
	for i := range now {
		if changed&(1<<i) != 0 {
			r.buffer = binary.AppendVarint(r.buffer, now[i]-c.last[i])
		}
	}
	before := cap(c.data)
	c.data = binary.AppendUvarint(c.data, uint64(tick-c.tick))
	c.data = append(c.data, r.buffer[from:]...)
	c.tick, c.last = tick, now
	s.bytes += int64(cap(c.data) - before)
	r.bytes += int64(cap(c.data) - before)
}

// expire drops segments that are older than what is kept.
func (r *ring) expire(now time.Time) {
	for len(r.segments) > 1 && now.Sub(r.timeOf(r.segments[0].last)) > r.keep {
		r.drop()
	}
}

// drop drops the oldest segment, but not the current one.
func (r *ring) drop() bool {
	if len(r.segments) < 2 {
		return false
	}
	r.remove(0)
	return true
}

func (r *ring) remove(i int) {
	r.bytes -= r.segments[i].bytes
	if r.file != nil {
		r.file.remove(r.segments[i].first)
	}
	r.segments = slices.Delete(r.segments, i, i+1)
}

func (r *ring) timeOf(tick int64) time.Time { return time.Unix(0, tick*int64(r.step)) }

// points returns the samples of a semaphore since a time.
func (r *ring) points(name string, since time.Time) (all []Point) {
	for _, s := range r.segments {
		if c := s.chunks[name]; c != nil && !r.timeOf(s.last).Before(since) {
			all = c.points(r, s, since, all)
		}
	}
	return all
}

// points appends the samples of a chunk, one for each tick.
func (c *chunk) points(r *ring, s *segment, since time.Time, all []Point) []Point {
	var (
		now     values
		present bool
		tick    = s.first
	)
	until := func(end int64) {
		for end = min(end, s.last+1); tick < end; tick++ { // later samples were cut
			if at := r.timeOf(tick); present && !at.Before(since) {
				all = append(all, Point{at, now.sample()})
			}
		}
	}
	at := s.first
	for data := c.data; len(data) > 0; {
		pause, n := binary.Uvarint(data)
		data = data[n:]
		at += int64(pause)
		until(at)
		changed, n := binary.Uvarint(data)
		data = data[n:]
		for i := range now {
			if changed&(1<<i) != 0 {
				d, n := binary.Varint(data)
				data = data[n:]
				now[i] += d
			}
		}
		present = changed&absent == 0
	}
	until(s.last + 1)
	return all
}

// Indices of fields in values.
const (
	grants   = 3
	failures = 4
)

func valuesOf(s Sample) values {
	return values{
		s.InUse, s.Effective, s.Waiting, s.Grants, s.Failures,
		bucketOf(s.HeadAge), bucketOf(s.WaitP50), bucketOf(s.WaitP99), bucketOf(s.HoldP50), bucketOf(s.HoldP99),
	}
}

func (v values) sample() Sample {
	return Sample{
		InUse: v[0], Effective: v[1], Waiting: v[2], Grants: v[grants], Failures: v[failures],
		HeadAge: durationOf(v[5]), WaitP50: durationOf(v[6]), WaitP99: durationOf(v[7]), HoldP50: durationOf(v[8]), HoldP99: durationOf(v[9]),
	}
}

// Durations are kept as the number of a bucket on a logarithmic scale, four to the octave.
const (
	shortest  = 100 * time.Microsecond
	perOctave = 4
)

func bucketOf(d time.Duration) int64 {
	if d < shortest {
		return 0
	}
	return 1 + int64(math.Round(perOctave*math.Log2(float64(d)/float64(shortest))))
}

func durationOf(bucket int64) time.Duration {
	if bucket == 0 {
		return 0
	}
	return time.Duration(float64(shortest) * math.Exp2(float64(bucket-1)/perOctave)).Round(10 * time.Microsecond)
}
