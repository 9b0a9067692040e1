package pgstore

import (
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// escape marks text that PostgreSQL cannot hold, in hexadecimal.
const escape = `\x`

// encodeText is text as it is stored: as it is, so that people can read it,
// unless PostgreSQL could not hold it.
func encodeText(text string) string {
	if utf8.ValidString(text) && !strings.ContainsRune(text, 0) && !strings.HasPrefix(text, escape) {
		return text
	}
	return escape + hex.EncodeToString([]byte(text))
}

func decodeText(stored string) string {
	digits, escaped := strings.CutPrefix(stored, escape)
	if !escaped {
		return stored
	}
	text, err := hex.DecodeString(digits)
	if err != nil {
		return stored // somebody else wrote it
	}
	return string(text)
}
