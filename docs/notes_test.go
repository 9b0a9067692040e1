package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Notes, in an HTML comment right before a block.
const (
	noteOutput     = "output"              // text: what the block before it prints; … stands for any text
	noteEachLine   = "each line by itself" // go: the lines are alternatives
	noteBackground = "in the background"   // sh: it runs until the end of the page
	noteCheckout   = "in the checkout"     // sh: it runs in the root of the checkout
	noteFails      = "fails"               // sh: its last command fails
	prefixFile     = "file: "              // go: its path; the shell blocks of the page find it in their home
	prefixTested   = "tested by: "         // any: "directory TestName" of the test that runs it
	prefixUnrun    = "not checked: "       // any: the reason
)

// elsewhere returns the note of a block in a page that is about something else than its
// blocks' checks: pages whose blocks a test of another package runs as a whole.
func elsewhere(page string, b *block) string {
	switch {
	case page == "docs/cli.md" && b.lang == "sh":
		return prefixTested + "cmd/sema TestDocs_CommandsWork"
	case page == "docs/service.md" && (b.lang == "sh" || b.lang == "python" || b.lang == "js"):
		return prefixTested + "cmd/sema TestDocs_ServiceWorks"
	case page == "docs/service.md" && b.lang == "yaml":
		return prefixTested + "cmd/sema TestDocs_ServiceWorks"
	case page == "docs/cli.md" && b.lang == "crontab":
		return prefixUnrun + "a line for cron"
	case page == "docs/admit.md" && b.lang == "sh":
		return prefixUnrun + "it needs a service with an operator's page; admin_test.go sends the same forms"
	case page == "README.md" && b.lang == "sh":
		return prefixUnrun + "scripts/bare.sh runs the first block on a new system; the other one needs a module of the user"
	case page == "README.md" && strings.Contains(b.code, "host.Open"):
		return noteEachLine
	}
	return ""
}

// TestBlocks_AreAllChecked checks that each block of code is compiled, run or parsed by a
// test, or has a reason why not.
func TestBlocks_AreAllChecked(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, b := range p.blocks {
			switch {
			case strings.HasPrefix(b.note, prefixUnrun):
				if len(strings.Fields(strings.TrimPrefix(b.note, prefixUnrun))) < 3 {
					t.Errorf("%s: the note needs a reason: %q", b.where(), b.note)
				}
			case strings.HasPrefix(b.note, prefixTested):
				checkTested(t, b)
			case b.lang == "go", b.lang == "sh", b.lang == "python", b.lang == "js": // TestGo_Compiles, TestShell_Runs, TestOtherLanguages_Print
			case b.lang == "" || b.lang == "text": // output and drawings
				if b.note == noteOutput && b == p.blocks[0] {
					t.Errorf("%s: output of nothing", b.where())
				}
			case b.lang == "json":
				if !json.Valid([]byte(b.code)) {
					t.Errorf("%s: not JSON", b.where())
				}
			default:
				t.Errorf("%s: no test checks this block of %s. Write before it: <!-- %sDIRECTORY TestName --> or <!-- %sREASON -->", b.where(), b.lang, prefixTested, prefixUnrun)
			}
		}
	}
}

// checkTested fails the test if the test that a note names does not exist, or does not name
// the page.
func checkTested(t *testing.T, b *block) {
	directory, name, _ := strings.Cut(strings.TrimPrefix(b.note, prefixTested), " ")
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(directory), "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if regexp.MustCompile(`(?m)^func `+regexp.QuoteMeta(name)+`\(`).Match(text) && strings.Contains(string(text), b.page.name) {
			return
		}
	}
	t.Errorf("%s: no file of %s declares %s and names %s", b.where(), directory, name, b.page.name)
}
