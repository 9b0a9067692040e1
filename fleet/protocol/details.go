package protocol

import (
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A Client describes the program behind a session, for listings. All fields are what
// the client claims.
type Client struct {
	Instance string // unique; receives notifications
	Kind     string // "program", "service", "command", "region"; "" if unknown
	Host     string
	Process  int64 // process id; 0 if unknown
}

// NewClient returns a description of this process as a client of a kind, with a random instance.
func NewClient(kind string) Client {
	host, _ := os.Hostname()
	return Client{Instance: fmt.Sprintf("%s/%d/%08x", host, os.Getpid(), mathrand.Uint32()), Kind: kind, Host: host, Process: int64(os.Getpid())}
}

// Details describe an acquire, for listings and for finding it again. Operations, tickets and
// leases refer to them: the acquires of a call site share one Details, which is never changed
// after that. A nil *Details is empty.
type Details struct {
	Site   string // file and line of the caller
	Labels string // "key=value" pairs
	Holder string // the client's own description of its work
	By     string // the identity that a service has authenticated
	Key    string // digest of an idempotency key; a service replies to the same key with the same lease
}

// About returns the client's description of the acquire, for listings: holder, call site,
// labels.
func (d Details) About() string {
	return strings.Join(slices.DeleteFunc([]string{d.Holder, d.Site, d.Labels}, func(text string) bool { return text == "" }), " ")
}

// Encode returns the details as one line of printable text, the form in which stores keep them:
//
//	site=main.go:44 labels="job=nightly shard=3" by=ci
//
// Empty fields are left out, and so the text of a nil *Details is empty.
func (d *Details) Encode() string {
	if d == nil {
		return ""
	}
	return encodeFields(field{"site", d.Site}, field{"labels", d.Labels}, field{"holder", d.Holder}, field{"by", d.By}, field{"key", d.Key})
}

// String returns the text of Encode, so that a printed operation shows its details.
func (d *Details) String() string { return d.Encode() }

// DecodeDetails returns the details that Encode has encoded. Fields of a newer
// version are ignored.
func DecodeDetails(text string) (d Details, err error) {
	err = decodeFields(text, func(name, value string) error {
		switch name {
		case "site":
			d.Site = value
		case "labels":
			d.Labels = value
		case "holder":
			d.Holder = value
		case "by":
			d.By = value
		case "key":
			d.Key = value
		}
		return nil
	})
	return d, err
}

// Encode returns all fields but the instance as one line of printable text. Stores keep it
// beside the instance.
func (c Client) Encode() string {
	process := ""
	if c.Process != 0 {
		process = strconv.FormatInt(c.Process, 10)
	}
	return encodeFields(field{"kind", c.Kind}, field{"host", c.Host}, field{"process", process})
}

// DecodeClient returns the client of an instance and of the text that Encode returned.
func DecodeClient(instance, text string) (Client, error) {
	c := Client{Instance: instance}
	err := decodeFields(text, func(name, value string) (err error) {
		switch name {
		case "kind":
			c.Kind = value
		case "host":
			c.Host = value
		case "process":
			c.Process, err = strconv.ParseInt(value, 10, 64)
		}
		return err
	})
	return c, err
}

// A field is a name and a value.
type field struct{ name, value string }

// encodeFields joins fields as name=value. A value with spaces, quotes or characters that are
// not printable is quoted as in Go, so that any bytes survive.
func encodeFields(fields ...field) string {
	var b strings.Builder
	for _, f := range fields {
		if f.value == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(f.name)
		b.WriteByte('=')
		if plain(f.value) {
			b.WriteString(f.value)
		} else {
			b.WriteString(strconv.Quote(f.value))
		}
	}
	return b.String()
}

// plain reports whether a value needs no quotes.
func plain(value string) bool {
	for i := range len(value) {
		if c := value[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// decodeFields calls set for each field of a text.
func decodeFields(text string, set func(name, value string) error) error {
	for rest := text; rest != ""; {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return fmt.Errorf("%q: want name=value", text)
		}
		var value string
		if strings.HasPrefix(after, `"`) {
			quoted, err := strconv.QuotedPrefix(after)
			if err != nil {
				return fmt.Errorf("%q: %w", text, errQuotes)
			}
			if value, err = strconv.Unquote(quoted); err != nil {
				return fmt.Errorf("%q: %w", text, errQuotes)
			}
			after = after[len(quoted):]
			if after != "" && after[0] != ' ' {
				return fmt.Errorf("%q: %w", text, errQuotes)
			}
			rest = strings.TrimPrefix(after, " ")
		} else {
			value, rest, _ = strings.Cut(after, " ")
		}
		if err := set(name, value); err != nil {
			return fmt.Errorf("%q: %s: %w", text, name, err)
		}
	}
	return nil
}

var errQuotes = errors.New("unbalanced quotes")
