package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRelease_BuildsTheSameForEverySystem checks .goreleaser.yaml: every program is built for
// the same systems, since goreleaser rejects archives with different numbers of programs;
// and the programs, archives and the image name what exists.
func TestRelease_BuildsTheSameForEverySystem(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile(`(?m)[ \t]+#.*$`).ReplaceAllString(string(text), "")
	field := func(text, name string) string {
		m := regexp.MustCompile(`(?m)^[ -]*` + name + `: *(.*)$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in\n%s", name, text)
		}
		return m[1]
	}
	list := func(text, name string) []string {
		return strings.Split(strings.Trim(field(text, name), "[]"), ", ")
	}

	builds := topLevel(t, config, "builds")
	var ids, binaries []string
	targets := ""
	for build := range strings.SplitSeq(builds, "\n  - ") {
		if strings.TrimSpace(build) == "" {
			continue
		}
		id := field(build, "id")
		ids = append(ids, id)
		binaries = append(binaries, field(build, "binary"))
		if main := field(build, "main"); !exists(filepath.Join(root, filepath.FromSlash(main), "main.go")) {
			t.Errorf("%s: %s has no main.go", id, main)
		}
		if targets == "" {
			targets = field(build, "targets")
		}
		if field(build, "targets") != targets {
			t.Errorf("%s is built for %s, and %s for %s: archives need the same programs on all systems", id, field(build, "targets"), ids[0], targets)
		}
	}
	if len(ids) != 3 {
		t.Errorf("builds %q", ids)
	}
	archives := topLevel(t, config, "archives")
	if got := list(archives, "ids"); !slices.Equal(got, ids) {
		t.Errorf("archives contain %q of %q", got, ids)
	}
	for _, pattern := range list(archives, "files") {
		if found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern))); err != nil || len(found) == 0 {
			t.Errorf("archives: no file %s (%v)", pattern, err)
		}
	}
	image := topLevel(t, config, "dockers_v2")
	dockerfile, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(field(image, "dockerfile"))))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range list(image, "ids") {
		i := slices.Index(ids, id)
		if i < 0 {
			t.Fatalf("the image contains %s, which is not built", id)
		}
		if !strings.Contains(string(dockerfile), "COPY $TARGETPLATFORM/"+binaries[i]+" ") {
			t.Errorf("the image does not copy %s", binaries[i])
		}
	}
}

// topLevel returns the value of a key at the first column, with its lines.
func topLevel(t *testing.T, config, key string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + key + `:((?:\n .*)+)`).FindStringSubmatch(config)
	if m == nil {
		t.Fatalf("no %s", key)
	}
	return m[1]
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
