package pgstore

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// escape precedes text that PostgreSQL cannot store, in hexadecimal.
const escape = `\x`

// encodeText returns instances, principals and notes as they are stored: unchanged, so
// that operators can read them, unless PostgreSQL cannot store them. (Details and
// clients are encoded by package protocol, as printable text.)
func encodeText(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) && !strings.HasPrefix(text, escape) {
		return text
	}
	return escape + hex.EncodeToString([]byte(text))
}

// decodeText reverses encodeText.
func decodeText(stored string) string {
	digits, escaped := strings.CutPrefix(stored, escape)
	if !escaped {
		return stored
	}
	text, err := hex.DecodeString(digits)
	if err != nil {
		return stored // not written by encodeText
	}
	return string(text)
}
