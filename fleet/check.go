package fleet

import (
	"fmt"
	"unicode"
	"unicode/utf8"

	"github.com/sema-go/sema"
)

const (
	maxName = 200 // bytes; names become keys, file names and labels
	maxMeta = 800 // bytes, with room for the call site; the text is stored with each lease
)

// CheckName fails if a name is not valid for every store. Clients check names themselves;
// servers check the names that they receive.
func CheckName(name string) error {
	invalid := func(detail string) error {
		return &sema.Error{Op: "open", Name: name, Err: sema.ErrInvalid, Detail: detail}
	}
	if name == "" || len(name) > maxName {
		if len(name) > maxName {
			name = name[:maxName] + "…"
		}
		return invalid(fmt.Sprintf("name: want 1 to %d bytes", maxName))
	}
	for _, r := range name {
		if r <= ' ' || r > '~' || r == '{' || r == '}' {
			return invalid(fmt.Sprintf("name: %q is not printable ASCII, or a space or a brace", r))
		}
	}
	return nil
}

// CheckMeta fails if a text cannot be stored with a lease.
func CheckMeta(meta string) error {
	if len(meta) > maxMeta {
		return fmt.Errorf("%d bytes; want %d at most", len(meta), maxMeta)
	}
	if !utf8.ValidString(meta) {
		return fmt.Errorf("%q is not UTF-8", meta)
	}
	for _, r := range meta {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%q is not printable text of one line", r)
		}
	}
	return nil
}
