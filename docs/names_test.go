package docs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// named is a test or example that a page names; with … it is the begin of its name.
var named = regexp.MustCompile("`((?:Test|Example|Benchmark|Fuzz)[A-Z0-9_]?\\w*)(…?)`")

// TestNames_Exist checks that the tests, examples and benchmarks that pages name exist.
func TestNames_Exist(t *testing.T) {
	t.Parallel()
	declared := declaredTests(t)
	checked := 0
	for _, p := range pages(t) {
		if p.name == "CHANGELOG.md" {
			continue // what was true at a release
		}
		for _, at := range named.FindAllStringSubmatchIndex(p.text, -1) {
			name, open := p.text[at[2]:at[3]], at[4] < at[5]
			checked++
			found := declared[name]
			for d := range declared {
				found = found || open && strings.HasPrefix(d, name)
			}
			if !found && !generic[name] {
				t.Errorf("%s:%d: no test declares %s", p.name, strings.Count(p.text[:at[0]], "\n")+1, name)
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d names", checked)
	}
}

// generic are names that stand for any test.
var generic = map[string]bool{"TestType_Behaviour": true, "TestName": true, "Test": true, "Example": true, "Benchmark": true, "Fuzz": true}

// declaredTests returns the names of all tests, examples and benchmarks.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	declared := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Example|Benchmark|Fuzz)\w*)\(`)
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		for _, f := range function.FindAllSubmatch(text, -1) {
			declared[string(f[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return declared
}

// TestScenarios_Exist checks that the scenarios of benchmarks that pages select exist.
func TestScenarios_Exist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "bench", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`"([a-z0-9][\w%-]*)"`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, name[1])
		}
	}
	selected := regexp.MustCompile(`go -C bench run \. [a-z]+ --?only ([\w-]+)`)
	checked := 0
	for _, p := range pages(t) {
		for _, m := range selected.FindAllStringSubmatch(p.text, -1) {
			checked++
			if !slices.ContainsFunc(names, func(name string) bool {
				// Some names are composed: of a prefix that ends in "-", or by a format.
				prefix, _, composed := strings.Cut(name, "%")
				composed = composed || strings.HasSuffix(name, "-")
				return strings.Contains(name, m[1]) || composed && len(prefix) > 3 && (strings.HasPrefix(m[1], prefix) || strings.HasPrefix(prefix, m[1]))
			}) {
				t.Errorf("%s: no scenario contains %q", p.name, m[1])
			}
		}
	}
	if checked < 5 {
		t.Errorf("%d scenarios", checked)
	}
}

// identifier is an exported name of a package, as pages write it: `rate.New`, `sema.Do(…)`.
var identifier = regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)")

// TestIdentifiers_Exist checks that the exported names of this project's packages that pages
// name exist.
func TestIdentifiers_Exist(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	packages := make(map[string][]string) // directories by the name of their package
	for dir := range tree.exported {
		packages[path.Base(dir)] = append(packages[path.Base(dir)], dir)
	}
	packages["sema"] = []string{"."}
	for _, foreign := range []string{"pprof", "context", "errors", "list", "semaphore"} {
		delete(packages, foreign)
	}
	checked := 0
	for _, p := range pages(t) {
		if p.name == "CHANGELOG.md" || strings.HasPrefix(p.name, "docs/design/") {
			continue // what was true at a release, and what was rejected
		}
		for _, at := range identifier.FindAllStringSubmatchIndex(p.prose, -1) {
			name := p.prose[at[4]:at[5]]
			dirs := packages[p.prose[at[2]:at[3]]]
			if len(dirs) == 0 {
				continue
			}
			checked++
			if !slices.ContainsFunc(dirs, func(dir string) bool { return tree.exported[dir][name] }) {
				t.Errorf("%s:%d: package %s has no %s", p.name, strings.Count(p.prose[:at[0]], "\n")+1, dirs, name)
			}
		}
	}
	if checked < 200 {
		t.Errorf("%d names", checked)
	}
}

// TestDoctor_ChecksExist checks that `sema doctor` can report the checks that the table of
// docs/failover.md names, and that the page names all checks that it can report.
func TestDoctor_ChecksExist(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, pattern := range []string{"cmd/sema/internal/doctor/*.go", "x/*store/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	text, err := os.ReadFile("failover.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "| the first `problem` |")
	rows, _, _ = strings.Cut(rows, "\n\nWhat programs do meanwhile")
	reported := regexp.MustCompile(`[cC]heck(?::| =) +"([^"]+)"|\b(?:problem|fine)\("([^"]+)", (?:"|fmt)|\{"([^"]+)", (?:""|fleet\.Fault\w+), (?:\[|nil)`)
	can := make(map[string]bool)
	for _, m := range reported.FindAllStringSubmatch(code.String(), -1) {
		can[m[1]+m[2]+m[3]] = true
	}
	checked := 0
	for line := range strings.Lines(rows) {
		first := line
		if strings.HasPrefix(line, "| ") {
			first, _, _ = strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		}
		for _, name := range spanned(first) {
			checked++
			if !can[name] {
				t.Errorf("failover.md: sema doctor has no check %s", name)
			}
		}
	}
	for name := range can {
		if !strings.Contains(rows, "`"+name+"`") {
			t.Errorf("failover.md: %q is a check of sema doctor, and the page has no row for it", name)
		}
	}
	if checked < 30 {
		t.Errorf("%d checks", checked)
	}
}
