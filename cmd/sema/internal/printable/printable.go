// Package printable makes untrusted text safe to write to a terminal: command lines, names,
// labels and errors of other users, programs and servers may contain anything. Every command
// of sema writes such text through this package.
package printable

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
)

// Longest is the maximum width in columns of one value in text output. JSON is not cut.
const Longest = 1000

// ellipsis replaces text that is cut out.
const ellipsis = "…"

// Line returns text as one line of visible characters, at most [Longest] columns
// wide. Line breaks and tabs become spaces. Escape sequences, other control
// characters (C0 and C1), bidirectional overrides, invisible characters and invalid
// UTF-8 become U+FFFD.
func Line(text string) string {
	// Cut first: measuring a megabyte takes long. A character has up to four bytes, and some
	// characters have no width.
	if most := 8 * utf8.UTFMax * Longest; len(text) > most {
		text = text[:most/2] + ellipsis + text[len(text)-most/2:]
	}
	return Fit(visible(text), Longest)
}

func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// Fit cuts text to at most width columns. It cuts the middle: names often differ at their ends.
// The text must be the result of [Line].
func Fit(text string, width int) string {
	columns := displaywidth.String(text)
	switch {
	case columns <= width:
		return text
	case width <= 0:
		return ""
	}
	end := withoutStart(text, columns-max(0, width-1)/2)
	return displaywidth.TruncateString(text, width-displaywidth.String(end), ellipsis) + end
}

// withoutStart returns text without its first columns. A wide character at the cut is removed.
func withoutStart(text string, columns int) string {
	characters := displaywidth.StringGraphemes(text)
	for columns > 0 && characters.Next() {
		columns -= characters.Width()
		text = text[len(characters.Value()):]
	}
	return text
}

// Sprintf formats like [fmt.Sprintf], and applies [Line] to every string and error.
func Sprintf(format string, args ...any) string {
	safe := make([]any, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			safe[i] = Line(arg)
		case error:
			safe[i] = Line(arg.Error())
		case Lines:
			safe[i] = arg.String()
		default:
			safe[i] = arg
		}
	}
	return fmt.Sprintf(format, safe...)
}

// Lines is a text of several lines. All but the first are indented, so that untrusted text cannot
// look like a message of sema.
type Lines []string

func (l Lines) String() string {
	all := make([]string, len(l))
	for i, line := range l {
		all[i] = Line(line)
	}
	return strings.Join(all, "\n  ")
}

// WriteJSON writes a value as JSON with a line break, indented by indent. Characters that a
// terminal interprets are escaped (\u009b), so that decoding the JSON is lossless.
func WriteJSON(w io.Writer, value any, indent string) error {
	var encoded strings.Builder
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, escaped(encoded.String()))
	return err
}

// escaped escapes unprintable characters of JSON text. Outside of strings, JSON has none except
// line breaks.
func escaped(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch high, low := utf16.EncodeRune(r); {
		case r == '\n' || unicode.IsPrint(r):
			out.WriteRune(r)
		case high != unicode.ReplacementChar:
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// Prefixed returns prefix followed by text as [Arg], or "" if the text is empty.
func Prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + Arg(text)
}

// Arg quotes text as one word for a shell, for commands that users paste.
func Arg(text string) string {
	text = Line(text)
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
