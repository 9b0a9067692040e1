package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/wfq"
)

// A setting is what a file sets for one name.
type setting struct {
	name     string
	why      string
	capacity *int64         // nil: not set
	window   time.Duration  // 0: not set
	classes  shares         // nil: not set
	at       map[string]int // offsets in the file: of the values by key, and of the name by ""
}

// value returns the value that the setting has, if it has one.
func (s *setting) value() (v Value, ok bool) {
	if s == nil || s.capacity == nil {
		return Value{}, false
	}
	return Value{*s.capacity, s.window}, true
}

// shares returns the shares that the setting has.
func (s *setting) shares() shares {
	if s == nil {
		return nil
	}
	return s.classes
}

const (
	maxFile   = 1 << 20
	maxWindow = 366 * 24 * time.Hour
	maxWeight = 1_000_000 // of package wfq
	maxTier   = 1_000_000
)

// readFile reads a regular file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	// A pipe would block, so look before opening it.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	return data, err
}

// A parser reads a file without looking at what is registered.
type parser struct{ report }

// parse returns the settings by name, with the problems found in the report. A file that
// is not JSON has no settings.
func parse(data []byte) (map[string]*setting, *report) {
	p := &parser{report{data: data}}
	settings := map[string]*setting{}
	if !p.syntax() {
		return nil, &p.report
	}
	start := len(data) - len(bytes.TrimLeft(data, " \t\r\n"))
	found := false
	p.object(value{data[start:], start}, "the file", func(key string, at int, v value) {
		if key != "limits" {
			p.add(at, "unknown key %q: want \"limits\"", key)
			return
		}
		found = true
		p.object(v, `"limits"`, func(name string, at int, v value) {
			if text := nameFault(name); text != "" {
				p.add(at, "%q: %s", name, text)
				return
			}
			settings[name] = p.limit(name, at, v)
		})
	})
	if !found && len(p.problems) == 0 {
		p.add(start, `no key "limits"`)
	}
	return settings, &p.report
}

// syntax reports whether the data is JSON.
func (p *parser) syntax() bool {
	if i := invalidUTF8(p.data); i >= 0 {
		p.add(i, "not UTF-8")
		return false
	}
	var ignored any
	err := json.Unmarshal(p.data, &ignored)
	var fault *json.SyntaxError
	switch {
	case err == nil:
		return true
	case len(bytes.TrimSpace(p.data)) == 0:
		p.add(0, "the file is empty")
	case errors.As(err, &fault):
		p.add(max(0, min(int(fault.Offset)-1, len(p.data))), "not JSON: %s", strings.TrimPrefix(fault.Error(), "json: "))
	default: // a number that no float64 holds
		p.add(-1, "not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return false
}

// invalidUTF8 returns the offset of the first invalid byte, or -1.
func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		c, n := utf8.DecodeRune(data[i:])
		if c == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// A value is a JSON value and its offset in the file.
type value struct {
	raw []byte
	at  int
}

// object calls do for each member of an object. It reports values that are no objects, and
// keys that occur twice.
func (p *parser) object(v value, what string, do func(key string, at int, v value)) {
	if v.raw[0] != '{' {
		p.add(v.at, "%s is %s: want an object", what, typeOf(v))
		return
	}
	seen := map[string]bool{}
	for m := range members(v) {
		if seen[m.key] {
			p.add(m.at, "%q occurs twice in %s", m.key, what)
			continue
		}
		seen[m.key] = true
		do(m.key, m.at, m.value)
	}
}

// A member is one of an object, with the offset of its key.
type member struct {
	key   string
	at    int
	value value
}

// members yields the members of an object, which is valid JSON.
func members(v value) iter.Seq[member] {
	return func(yield func(member) bool) {
		decoder := json.NewDecoder(bytes.NewReader(v.raw))
		if _, err := decoder.Token(); err != nil {
			return
		}
		for decoder.More() {
			before := int(decoder.InputOffset())
			at := before + bytes.IndexByte(v.raw[before:], '"')
			key, err := decoder.Token()
			if err != nil {
				return
			}
			var raw json.RawMessage
			if decoder.Decode(&raw) != nil {
				return
			}
			start := int(decoder.InputOffset()) - len(raw)
			if !yield(member{key.(string), v.at + at, value{raw, v.at + start}}) {
				return
			}
		}
	}
}

// typeOf returns the type of a value in words.
func typeOf(v value) string {
	switch v.raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	}
	return string(v.raw) // a number, true or false
}

// limit reads the setting of one name.
func (p *parser) limit(name string, at int, v value) *setting {
	s := &setting{name: name, at: map[string]int{"": at}}
	p.object(v, strconv.Quote(name), func(key string, at int, v value) {
		what := fmt.Sprintf("%q: %s", name, key)
		s.at[key] = v.at
		switch key {
		case "capacity":
			if n, ok := p.integer(v, what, 0, sema.MaxCapacity); ok {
				s.capacity = &n
			}
		case "window":
			s.window = p.duration(v, what, maxWindow)
		case "why":
			s.why = p.text(v, what)
		case "classes":
			s.classes = shares{}
			p.object(v, what, func(class string, at int, v value) {
				if len(class) > maxName {
					p.add(at, "%s: the class %q has %d bytes; want at most %d", what, class, len(class), maxName)
					return
				}
				s.classes[class] = p.share(fmt.Sprintf("%q: class %q", name, class), v)
			})
		case "max_wait", "max_waiters":
			p.add(at, "%s is fixed when the gate is created, so a file cannot set it: use sema.MaxWait and sema.MaxWaiters, or classes of a wfq.Queue", what)
		default:
			p.add(at, "%q: unknown key %q: want capacity, window, classes or why", name, key)
		}
	})
	return s
}

// share reads the share of a class. The bounds are those of [wfq.Queue.Set].
func (p *parser) share(class string, v value) (s wfq.Share) {
	p.object(v, class, func(key string, at int, v value) {
		what := class + ": " + key
		switch key {
		case "weight":
			s.Weight, _ = p.integer(v, what, 1, maxWeight)
		case "min":
			s.Min, _ = p.integer(v, what, 0, sema.MaxCapacity)
		case "max":
			s.Max, _ = p.integer(v, what, 1, sema.MaxCapacity)
		case "tier":
			tier, _ := p.integer(v, what, -maxTier, maxTier)
			s.Tier = int(tier)
		case "order":
			s.Order = p.order(v, what)
		case "max_waiters":
			n, ok := p.integer(v, what, 0, math.MaxInt32)
			if s.MaxWaiters = int(n); ok && n == 0 {
				s.MaxWaiters = sema.NoWaiters
			}
		case "max_wait":
			s.MaxWait = p.duration(v, what, maxWindow)
		default:
			p.add(at, "%s: unknown key %q: want weight, min, max, tier, order, max_waiters or max_wait", class, key)
		}
	})
	if s.Max > 0 && s.Min > s.Max {
		p.add(v.at, "%s: min is %d, above max, which is %d", class, s.Min, s.Max)
	}
	return s
}

// integer reads a whole number from lo to hi.
func (p *parser) integer(v value, what string, lo, hi int64) (int64, bool) {
	n, err := strconv.ParseInt(string(v.raw), 10, 64)
	if err == nil && n >= lo && n <= hi {
		return n, true
	}
	p.add(v.at, "%s is %s: want a whole number from %d to %d", what, typeOf(v), lo, hi)
	return 0, false
}

// text reads a string.
func (p *parser) text(v value, what string) (s string) {
	if v.raw[0] != '"' {
		p.add(v.at, "%s is %s: want a string", what, typeOf(v))
		return ""
	}
	_ = json.Unmarshal(v.raw, &s) // it is valid
	return s
}

// duration reads a positive duration such as "1.5s".
func (p *parser) duration(v value, what string, most time.Duration) time.Duration {
	const want = `want a duration from "1ns" to %q, such as "500ms", "10s" or "1h"`
	var s string
	if v.raw[0] != '"' {
		p.add(v.at, "%s is %s: "+want, what, typeOf(v), most)
	} else if d, err := time.ParseDuration(p.text(v, what)); err == nil && d > 0 && d <= most {
		return d
	} else {
		_ = json.Unmarshal(v.raw, &s)
		p.add(v.at, "%s is %q: "+want, what, s, most)
	}
	return 0
}

var orders = []wfq.Order{wfq.FIFO, wfq.LIFO, wfq.CoDel, wfq.AdaptiveLIFO}

// order reads the name of an order.
func (p *parser) order(v value, what string) wfq.Order {
	text := p.text(v, what)
	if i := slices.IndexFunc(orders, func(o wfq.Order) bool { return o.String() == text }); i >= 0 {
		return orders[i]
	}
	if v.raw[0] == '"' {
		p.add(v.at, "%s is %q: want one of %v", what, text, orders)
	}
	return wfq.FIFO
}
