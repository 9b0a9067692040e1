package docs

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDockerignore_KeepsWhatIsBuilt checks that .dockerignore excludes no file that the
// programs of deploy/Dockerfile are compiled from or embed.
func TestDockerignore_KeepsWhatIsBuilt(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, ".dockerignore"))
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	ignored := dockerignore(t, string(text))
	files := 0
	for _, built := range []struct {
		system []string
		roots  []string
	}{
		{[]string{"GOOS=linux", "GOARCH=amd64"}, []string{"./cmd/sema", "./x/play/build"}},
		{[]string{"GOOS=js", "GOARCH=wasm"}, []string{"./x/play/wasm"}},
	} {
		for _, file := range sourcesOf(t, top, built.system, built.roots) {
			files++
			if by := ignored(filepath.ToSlash(file)); by != "" {
				t.Errorf("%s is part of the image, and .dockerignore excludes it by %q", file, by)
			}
		}
	}
	for _, file := range []string{"go.work", "go.mod", "go.sum", "x/go.mod", "site/go.mod", "bench/go.mod", "cmd/sema/go.mod", "cmd/semavet/go.mod"} {
		if by := ignored(file); by != "" {
			t.Errorf("the image cannot be built without %s, which .dockerignore excludes by %q", file, by)
		}
	}
	if files < 300 {
		t.Errorf("%d files", files)
	}
}

// sourcesOf returns the files in the directory top that go build reads to build the
// packages, as paths from top.
func sourcesOf(t *testing.T, top string, system, packages []string) []string {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-deps", "-json=Dir,GoFiles,CgoFiles,HFiles,SFiles,EmbedFiles"}, packages...)...)
	list.Dir = top
	list.Env = append(append(os.Environ(), "CGO_ENABLED=0"), system...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list.Args, err)
	}
	var files []string
	for packages := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Dir                                           string
			GoFiles, CgoFiles, HFiles, SFiles, EmbedFiles []string
		}
		err := packages.Decode(&p)
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		dir, err := filepath.Rel(top, p.Dir)
		if err != nil || strings.HasPrefix(dir, "..") {
			continue // a package of Go or of another module
		}
		for _, names := range [][]string{p.GoFiles, p.CgoFiles, p.HFiles, p.SFiles, p.EmbedFiles} {
			for _, name := range names {
				if strings.HasSuffix(name, "_test.go") {
					continue // embedded by a pattern of which other files remain: lesson_*.go
				}
				files = append(files, filepath.Join(dir, name))
			}
		}
	}
}

// dockerignore returns a function that returns the pattern that excludes a file, or "". It
// knows the patterns *, ? and **, and that a pattern excludes what is below a directory.
func dockerignore(t *testing.T, text string) func(file string) string {
	t.Helper()
	type rule struct {
		pattern string
		matches *regexp.Regexp
	}
	var rules []rule
	for line := range strings.Lines(text) {
		pattern := strings.Trim(strings.TrimSpace(line), "/")
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		if strings.ContainsAny(pattern, `![\`) {
			t.Fatalf(".dockerignore: %q: this test does not know such patterns", pattern)
		}
		expression := strings.NewReplacer(`\*\*/`, `(?:.*/)?`, `\*\*`, `.*`, `\*`, `[^/]*`, `\?`, `[^/]`).Replace(regexp.QuoteMeta(pattern))
		rules = append(rules, rule{pattern, regexp.MustCompile(`^` + expression + `(?:/|$)`)})
	}
	return func(file string) string {
		for _, r := range rules {
			if r.matches.MatchString(file) {
				return r.pattern
			}
		}
		return ""
	}
}
