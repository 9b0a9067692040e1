//go:build unix

package docs

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/sema-go/sema/internal/storetest"
)

// interpreters run the blocks of other languages, by the language of the block: the program,
// its package, and the option that takes the code.
var interpreters = map[string][3]string{
	"python": {"python3", "python3", "-c"},
	"js":     {"node", "nodejs", "-e"},
}

// TestOtherLanguages_Print runs the programs in other languages, and compares what they print
// with what the page shows.
func TestOtherLanguages_Print(t *testing.T) {
	t.Parallel()
	for lang, interpreter := range interpreters {
		for _, b := range blocksOf(t, lang) {
			if b.note != "" {
				continue // another test runs it
			}
			t.Run(strings.ReplaceAll(b.where(), "/", "."), func(t *testing.T) {
				t.Parallel()
				program := storetest.Need(t, interpreter[0], interpreter[1])
				want, shown := b.output()
				if !shown {
					t.Errorf("%s: the page does not show what it prints", b.where())
				}
				ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
				defer cancel()
				out, err := exec.CommandContext(ctx, program, interpreter[2], b.code).CombinedOutput()
				if err != nil || !matches(want, string(out)) {
					t.Errorf("%s: %v, printed\n%s\nwant\n%s", b.where(), err, out, want)
				}
			})
		}
	}
}
