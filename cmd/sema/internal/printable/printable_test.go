package printable_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/sema-go/sema/cmd/sema/internal/printable"
)

// hostile contains characters that a terminal interprets or displays misleadingly: ESC, C1 (as a
// character and as a byte), DEL, NUL, bidirectional overrides and isolates, zero-width and private
// characters, line separators, tags.
const hostile = "a\x1b]0;title\x07b\u009b31mc\x9bd\x7f\x00e\u202ef\u2066g\u200bh\ufeff\ue000\u2028\U000e0041\r\n\ti"

func TestLine_HasNothingThatATerminalInterprets(t *testing.T) {
	t.Parallel()
	got := printable.Line(hostile)
	for _, r := range got {
		if !unicode.IsPrint(r) {
			t.Errorf("%q has %q", got, r)
		}
	}
	for _, letter := range "abcdefghi" {
		if !strings.ContainsRune(got, letter) {
			t.Errorf("%q lost %q", got, letter)
		}
	}
	if plain := "größe 日本 ✓ é|"; printable.Line(plain) != plain {
		t.Errorf("%q became %q", plain, printable.Line(plain))
	}
}

func TestLine_IsBounded(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("x", 1<<20), strings.Repeat("日", 5000), "begin" + strings.Repeat("\x1b", 5000) + "end"} {
		got := printable.Line(text)
		if width := ansi.StringWidth(got); width > printable.Longest || width < printable.Longest-2 || !strings.Contains(got, "…") {
			t.Errorf("%d columns", width)
		}
	}
	if got := printable.Line("begin" + strings.Repeat("-", 5000) + "end"); !strings.HasPrefix(got, "begin-") || !strings.HasSuffix(got, "-end") {
		t.Errorf("%q", got)
	}
}

func TestFit_CutsTheMiddle(t *testing.T) {
	t.Parallel()
	for width, want := range map[int]string{20: "tenant-a/db-primary", 19: "tenant-a/db-primary", 11: "tenan…imary", 2: "t…", 1: "…", 0: ""} {
		if got := printable.Fit("tenant-a/db-primary", width); got != want {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
}

func TestSprintf_CleansArguments(t *testing.T) {
	t.Parallel()
	got := printable.Sprintf("%s: %v (%d)%s", "a\nb", errors.New("c\x1b[2J"), 7, printable.Lines{"", "d\ne", "f"})
	if want := "a b: c\ufffd[2J (7)\n  d e\n  f"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWriteJSON_IsExactAndPrintable(t *testing.T) {
	t.Parallel()
	valid := strings.ToValidUTF8(hostile, "\ufffd")
	var out strings.Builder
	if err := printable.WriteJSON(&out, map[string]string{"about": valid}, "  "); err != nil {
		t.Fatal(err)
	}
	for _, r := range out.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%q has %q", out.String(), r)
		}
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back["about"] != valid {
		t.Errorf("%v: %q, want %q", err, back["about"], valid)
	}
}

func TestArg_IsOneWord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"team/a": "team/a", "a b": "'a b'", "$(reboot)": "'$(reboot)'", "it's": `'it'\''s'`, "": "''", "a;b": "'a;b'"} {
		if got := printable.Arg(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}
