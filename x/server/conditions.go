package server

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// etag returns the entity tag of a version of a configuration. It identifies only the
// configuration, not the holders and waiters: requests that change a configuration are
// conditional, GET is not.
func etag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// conditions holds the preconditions of a request (RFC 9110, section 13.1). The zero value
// has none.
type conditions struct {
	match, noneMatch *entityTags // nil: not given
	version          uint64      // set by RPC and the dashboard; 0: not given
}

// readConditions parses If-Match and If-None-Match.
func readConditions(h http.Header) (c conditions, err error) {
	if c.match, err = readTags(h, "If-Match"); err == nil {
		c.noneMatch, err = readTags(h, "If-None-Match")
	}
	return c, err
}

// check fails if a condition does not hold for a semaphore with the given version, or for
// one that does not exist.
func (c conditions) check(exists bool, version uint64) error {
	present := "it does not exist"
	if exists {
		present = "its ETag is " + etag(version)
	}
	if c.version != 0 && (!exists || c.version != version) {
		if exists {
			present = fmt.Sprintf("it has version %d", version)
		}
		return newProblem(kindPrecondition, "version: want %d, but %s; inspect it and decide again", c.version, present)
	}
	if c.match != nil && !c.match.include(exists, etag(version), false) {
		return newProblem(kindPrecondition, "If-Match: %s does not match: %s; GET it and decide again", c.match, present)
	}
	if c.noneMatch != nil && c.noneMatch.include(exists, etag(version), true) {
		return newProblem(kindPrecondition, "If-None-Match: %s matches: %s; GET it and decide again", c.noneMatch, present)
	}
	return nil
}

// entityTags is the parsed value of If-Match or If-None-Match.
type entityTags struct {
	any  bool // *
	tags []string
}

func (t *entityTags) String() string {
	if t.any {
		return "*"
	}
	return clip(strings.Join(t.tags, ", "))
}

// include reports whether the tags match an existing entity's tag. The server's tags are
// strong; a weak tag matches only by weak comparison.
func (t *entityTags) include(exists bool, tag string, weak bool) bool {
	return exists && (t.any || slices.ContainsFunc(t.tags, func(one string) bool { return one == tag || weak && one == "W/"+tag }))
}

// readTags parses a header field, which may have several lines.
func readTags(h http.Header, name string) (*entityTags, error) {
	lines, given := h[name]
	if !given {
		return nil, nil
	}
	value := strings.TrimSpace(strings.Join(lines, ", "))
	if value == "*" {
		return &entityTags{any: true}, nil
	}
	t := &entityTags{}
	for rest := value; rest != ""; {
		if rest[0] == ',' { // empty elements are allowed
			rest = strings.TrimLeft(rest[1:], " \t")
			continue
		}
		tag, after, ok := cutTag(rest)
		after = strings.TrimLeft(after, " \t")
		if !ok || after != "" && after[0] != ',' {
			return nil, invalid("%s: %s: want *, or ETags in double quotes with commas between", name, quote(value))
		}
		t.tags, rest = append(t.tags, tag), after
	}
	return t, nil
}

// cutTag cuts an entity tag off the start of a text.
func cutTag(text string) (tag, after string, ok bool) {
	opaque := strings.TrimPrefix(text, "W/")
	if !strings.HasPrefix(opaque, `"`) {
		return "", "", false
	}
	end := strings.IndexByte(opaque[1:], '"')
	if end < 0 {
		return "", "", false
	}
	length := len(text) - len(opaque) + 1 + end + 1
	return text[:length], text[length:], true
}
