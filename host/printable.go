package host

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxCommand is the maximum length of a command line, in bytes; a longer one is truncated.
const maxCommand = 1024

// printable makes text that another process wrote safe to show on a terminal. Invalid
// UTF-8, control characters and characters that change the direction of text become
// U+FFFD. White space becomes a space. Text longer than most bytes is truncated and
// ends in "…".
func printable(text string, most int) string {
	const ellipsis = "…"
	cut := len(text) > most
	var b strings.Builder
	for _, r := range text[:min(len(text), most)] { // invalid UTF-8 is U+FFFD already
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > most {
			cut = true
			break
		}
		b.WriteRune(r)
	}
	if !cut {
		return strings.TrimSpace(b.String())
	}
	kept := b.String()
	for len(kept)+len(ellipsis) > most {
		_, size := utf8.DecodeLastRuneInString(kept)
		kept = kept[:len(kept)-size]
	}
	return strings.TrimSpace(kept) + ellipsis
}
