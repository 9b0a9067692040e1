package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestChangelog_KeepsItsForm checks that CHANGELOG.md has the form of keepachangelog.com:
// versions, newest first, with sections in one order, and nothing outside of a section.
func TestChangelog_KeepsItsForm(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
	version := regexp.MustCompile(`^## (Unreleased|\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d)$`)
	versions, last := 0, -1
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "### "):
			at := slices.Index(sections, strings.TrimPrefix(line, "### "))
			if versions == 0 || at <= last {
				t.Errorf("CHANGELOG.md:%d: %q: want the sections %q of a version, each once, in this order", i+1, line, sections)
			}
			last = at
		case strings.HasPrefix(line, "## "):
			if !version.MatchString(line) || line == "## Unreleased" && versions > 0 {
				t.Errorf("CHANGELOG.md:%d: %q: want \"## Unreleased\" first, then \"## 1.2.3 - 2026-01-31\"", i+1, line)
			}
			versions, last = versions+1, -1
		case strings.HasPrefix(line, "- ") && last < 0:
			t.Errorf("CHANGELOG.md:%d: an entry outside of a section: move it below \"### Added\", \"### Changed\", …", i+1)
		}
	}
	if versions == 0 {
		t.Error("CHANGELOG.md has no version")
	}
}
