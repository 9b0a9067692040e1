package desk

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// marks are what a desk stores with the metadata of a request: the client's identity,
// and the digest of its key. They follow the metadata in brackets,
//
//	nightly [by="ci" key=00112233445566778899aabb]
//
// so that people can read them, and the metadata is found again as it was sent: the last
// brackets are the desk's. Metadata that ends as if it had marks is followed by empty ones.
type marks struct {
	by  string
	key string // hexadecimal digits
}

const marksBegin, marksEnd = " [", "]"

// label returns the metadata of a request as it is stored.
func (r Request) label() string {
	text := marks{r.By, r.mark}.String()
	if _, _, has := cutMarks(r.Meta); text == "" && !has {
		return r.Meta
	}
	return r.Meta + marksBegin + text + marksEnd
}

func (m marks) String() string {
	var all []string
	if m.by != "" {
		all = append(all, "by="+strings.ReplaceAll(strconv.Quote(m.by), "[", `\x5b`)) // only marksBegin has one
	}
	if m.key != "" {
		all = append(all, "key="+m.key)
	}
	return strings.Join(all, " ")
}

// cutMarks splits what is stored.
func cutMarks(label string) (meta string, m marks, has bool) {
	rest, ok := strings.CutSuffix(label, marksEnd)
	begin := strings.LastIndex(rest, marksBegin)
	if !ok || begin < 0 {
		return label, marks{}, false
	}
	meta, text := rest[:begin], rest[begin+len(marksBegin):]
	if after, found := strings.CutPrefix(text, "by="); found {
		quoted, err := strconv.QuotedPrefix(after)
		if err != nil {
			return label, marks{}, false
		}
		m.by, _ = strconv.Unquote(quoted)
		text = strings.TrimPrefix(after[len(quoted):], " ")
	}
	if m.key, ok = strings.CutPrefix(text, "key="); !ok {
		return meta, m, text == ""
	}
	_, err := hex.DecodeString(m.key)
	return meta, m, err == nil
}

// ReadMeta returns the metadata of a lease or waiter as the client sent it, and the
// client's identity, "" if it has none. Only the sessions of desks have one.
func ReadMeta(instance, label string) (meta, by string) {
	if !strings.HasPrefix(instance, deskInstance) {
		return label, ""
	}
	meta, m, has := cutMarks(label)
	if !has {
		return label, ""
	}
	return meta, m.by
}
