package docs

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// topics are the numbers that the second half of docs/project/coverage.md must have.
const topics = `0.3 0.4 0.5 0.6 0.8 0.13 0.14 0.16 0.17 0.18 0.22 0.23 0.25 0.26 0.27 0.28 0.29 0.31 0.32 0.33 0.34 0.35
	0.36 0.38 0.39 0.40 0.46 0.49 0.51 0.53 0.57 0.58 0.59 0.60 0.63 0.64 0.65 0.66 0.67 0.68 0.69 0.70 0.71 0.74 0.75 0.78 0.80
	0.81 0.82 0.83 0.84 0.87 0.88 0.90 0.95 0.96 0.101 0.103 0.107 0.109 0.110 0.111 0.118–0.127 0.128–0.134 0.sheet 0.135 0.136
	0.137 0.138 0.139 0.140 0.141 0.drawings
	1.9 1.12 1.13 1.14 1.16 1.18 1.19 1.20 1.21 1.22 1.24 1.27 1.29 1.30 1.31 1.32 1.analogies 1.33 1.34 1.35 1.36 1.37 1.uses
	1.code 1.43 1.45 1.46 1.48 1.49 1.50 1.52 1.57 1.60 1.mistakes 1.questions 1.67 1.69 1.sheet 1.build 1.drawings
	2.4 2.9 2.15 2.16 2.18 2.19 2.20 3.1 3.2 3.5 3.5b 3.6 3.7 3.8 3.9 3.10 3.11 4.15 4.16 4.20`

// capabilities is the number of the last capability.
const capabilities = 34

var (
	spans    = regexp.MustCompile("`([^`]+)`")
	testFile = regexp.MustCompile(`^[\w/-]+_test\.go$`)
)

// TestCoverage_IsComplete checks that docs/project/coverage.md has a row for each capability
// and topic, and that the packages, identifiers, commands, examples, tests and files that a
// row names exist. TestLinks_Lead follows its links.
func TestCoverage_IsComplete(t *testing.T) {
	t.Parallel()
	const name = "docs/project/coverage.md"
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	tree := newTree(t)
	found := make(map[string]bool)
	for i, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "#" {
			continue
		}
		if len(cells) != 5 {
			t.Errorf("%s:%d: %d cells, want number, topic, package, example, tests", name, i+1, len(cells))
			continue
		}
		for _, n := range strings.Split(cells[0], ", ") {
			found[n] = true
		}
		for _, problem := range tree.problems(cells[2], cells[3], cells[4]) {
			t.Errorf("%s:%d: %s: %s", name, i+1, cells[1], problem)
		}
	}
	for n := range capabilities {
		if !found[strconv.Itoa(n+1)] {
			t.Errorf("no row for capability %d", n+1)
		}
	}
	for _, topic := range strings.Fields(topics) {
		if !found[topic] {
			t.Errorf("no row for topic %s", topic)
		}
	}
}

// A tree is what a row of the coverage page may name.
type tree struct {
	directories map[string]bool            // paths from the root
	exported    map[string]map[string]bool // the exported names of each directory
	files       []string                   // test files, by path
	tests       map[string]bool
	cli         string // the page of the command line
}

func newTree(t *testing.T) *tree {
	t.Helper()
	tr := &tree{directories: make(map[string]bool), exported: make(map[string]map[string]bool), tests: declaredTests(t)}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."), d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir():
			tr.directories[name] = true
		case strings.HasSuffix(name, "_test.go"):
			tr.files = append(tr.files, name)
		case path.Ext(name) == ".go":
			return tr.declare(name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	cli, err := os.ReadFile("cli.md")
	if err != nil {
		t.Fatal(err)
	}
	tr.cli = string(cli)
	return tr
}

// declare adds the exported names of a file.
func (tr *tree) declare(name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(name)), nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	if tr.exported[dir] == nil {
		tr.exported[dir] = make(map[string]bool)
	}
	for _, d := range file.Decls {
		for _, n := range namesOf(d) {
			tr.exported[dir][n] = token.IsExported(n)
		}
	}
	return nil
}

// problems returns what is wrong with three cells of a row.
func (tr *tree) problems(packages, example, tests string) (problems []string) {
	for _, name := range spanned(packages) {
		if !tr.code(name) {
			problems = append(problems, "no package, identifier or command "+name)
		}
	}
	if len(spanned(packages)) == 0 {
		problems = append(problems, "names no package")
	}
	if len(spanned(example)) == 0 && !strings.Contains(example, "](") {
		problems = append(problems, "names no example")
	}
	counted := 0
	for _, name := range spanned(tests) {
		switch {
		case testFile.MatchString(name):
			if !slices.ContainsFunc(tr.files, func(f string) bool { return f == name || strings.HasSuffix(f, "/"+name) }) {
				problems = append(problems, "no file "+name)
			}
			counted++
		case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"), strings.HasPrefix(name, "Benchmark"):
			counted++ // TestNames_Exist checks it
		}
	}
	if counted == 0 {
		problems = append(problems, "names no test")
	}
	return problems
}

// code reports whether a name is a directory, an exported name of a package, or a command.
func (tr *tree) code(name string) bool {
	if name == "sema" || tr.directories[name] {
		return true
	}
	if command, _, _ := strings.Cut(strings.TrimPrefix(name, "sema "), " --"); strings.HasPrefix(name, "sema ") {
		return strings.Contains(tr.cli, "sema "+command) || command == "serve"
	}
	dir, identifier, found := strings.Cut(name, ".")
	if dir == "sema" {
		dir = "."
	}
	if dir == "checks" {
		dir = "cmd/semavet/checks"
	}
	return found && tr.exported[dir][identifier]
}

// spanned returns the texts between backticks.
func spanned(cell string) (texts []string) {
	for _, m := range spans.FindAllStringSubmatch(cell, -1) {
		texts = append(texts, m[1])
	}
	return texts
}
