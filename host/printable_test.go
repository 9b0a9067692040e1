package host

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable_ReplacesAndTruncates(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", maxCommand)
	for in, want := range map[string]string{
		"":                                "",
		"make -j 4":                       "make -j 4",
		"größe 日本":                        "größe 日本",
		"a\x1b[2J\x1b]0;title\x07b":       "a\ufffd[2J\ufffd]0;title\ufffdb",
		"sh -c \tif true\nthen\r\n":       "sh -c  if true then",
		"\x9b31m\u009b31m\x7f":            "\ufffd31m\ufffd31m\ufffd",
		"\xff\xfe":                        "\ufffd\ufffd",
		"a\u202etxt.exe\u2066\u200b":      "a\ufffdtxt.exe\ufffd\ufffd",
		"a\u2028b\u00a0c":                 "a b c",
		long:                              strings.Repeat("é", maxCommand/2-2) + "…",
		strings.Repeat("x", maxCommand):   strings.Repeat("x", maxCommand),
		strings.Repeat("\xff", 500):       strings.Repeat("\ufffd", 340) + "…",
		strings.Repeat("x", maxCommand+1): strings.Repeat("x", maxCommand-3) + "…",
	} {
		if got := printable(in, maxCommand); got != want {
			t.Errorf("%.60q (%d bytes)\ngot  %.60q (%d bytes)\nwant %.60q (%d bytes)", in, len(in), got, len(got), want, len(want))
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("sh -c \x1b[31m", 10)
	f.Add("\xffé日\u202e", 4)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = 3 + (most&0x7fffffff)%2000
		got := printable(text, most)
		if len(got) > most || !utf8.ValidString(got) {
			t.Errorf("%d bytes of at most %d: %q", len(got), most, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) && r != utf8.RuneError {
				t.Errorf("%q in %q", r, got)
			}
		}
		if again := printable(got, most); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}
