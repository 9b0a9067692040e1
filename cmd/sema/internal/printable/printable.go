// Package printable makes text from elsewhere safe to write to a terminal: command
// lines, names, labels and error texts of other users, programs and servers may
// contain anything. Every command of sema writes such text through this package.
package printable

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
)

// Longest is how many columns one value takes in text output. JSON has all of it.
const Longest = 1000

// ellipsis replaces what is cut out.
const ellipsis = "…"

// Line returns text as one line of visible characters, at most [Longest] columns
// wide. Line breaks and tabs become spaces. Escape sequences, other control
// characters (C0 and C1), bidirectional overrides, invisible characters and invalid
// UTF-8 become U+FFFD.
func Line(text string) string {
	// The cut comes first: measuring a megabyte takes long. Four bytes make a
	// character, and some characters take no column.
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

// Fit returns text in at most width columns. The middle is cut out: names often
// differ at their ends. The text must be a [Line].
func Fit(text string, width int) string {
	columns := ansi.StringWidth(text)
	if columns <= width {
		return text
	}
	end := ansi.TruncateLeft(text, columns-max(0, width-1)/2, "")
	return ansi.Truncate(text, width-ansi.StringWidth(end), ellipsis) + end // half of a wide character is a whole one
}

// Sprintf formats like [fmt.Sprintf], with every string and error as a [Line].
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

// Lines are several lines of text. All but the first are indented, so that text from
// elsewhere cannot pass for a message of its own.
type Lines []string

func (l Lines) String() string {
	all := make([]string, len(l))
	for i, line := range l {
		all[i] = Line(line)
	}
	return strings.Join(all, "\n  ")
}

// WriteJSON writes a value as JSON and a line break, indented by indent. Characters
// that a terminal obeys are escaped (\u009b), so that what a program decodes is exact.
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

// escaped escapes unprintable characters of JSON text. Outside of its strings there
// are none but line breaks.
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

// Prefixed returns prefix and text as [Arg]; "" if the text is empty.
func Prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + Arg(text)
}

// Arg returns text as one word for a shell, for commands that users paste.
func Arg(text string) string {
	text = Line(text)
	if text != "" && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_") == "" {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
