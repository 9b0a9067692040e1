// Command plainwords checks the language of a source tree: words that the glossary
// replaces, doc comments that do not start with the name they describe, identifiers and
// test names.
//
//	plainwords [-C dir] [file or directory ...]
//
// Without arguments it checks all files that git tracks in the directory. It prints one
// line per finding, with what to write instead, and exits with status 1 if there are any.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("C", ".", "directory of the tree")
	flag.Parse()
	findings, err := checkTree(*dir, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "plainwords:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(findings) > 0 {
		fmt.Fprintf(os.Stderr, "plainwords: %d findings\n", len(findings))
		os.Exit(1)
	}
}

// A finding is one place that needs other words.
type finding struct {
	file string
	line int
	text string // what is wrong
	want string // what to write instead
}

// String returns the finding in the form that editors recognise.
func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.text, f.want) }

// checkTree checks the tracked files below dir that start with one of the paths, or all.
func checkTree(dir string, paths []string) (findings []finding, err error) {
	list := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, paths...)...)
	list.Dir = dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSuffix(name, "\n")
		if exempt(name) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed
		}
		if err != nil {
			return nil, err
		}
		found, err := checkFile(name, text)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

// exempt reports whether a file is not written by hand, or is about the words themselves.
func exempt(name string) bool {
	generated := strings.HasSuffix(name, ".pb.go") || strings.HasSuffix(name, ".connect.go") || strings.HasSuffix(name, ".min.js")
	return generated || strings.HasPrefix(name, "tools/plainwords/")
}

// checkFile checks one file by its kind. Files of other kinds have no findings.
func checkFile(name string, text []byte) ([]finding, error) {
	switch filepath.Ext(name) {
	case ".go":
		return checkGo(name, text)
	case ".md", ".proto", ".lua", ".sql", ".html", ".yaml", ".pml":
		return checkText(name, string(text)), nil
	}
	return nil, nil
}

// checkText checks each line of a text.
func checkText(name, text string) (findings []finding) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		findings = append(findings, checkWords(name, n, line)...)
	}
	return findings
}

// checkWords checks one piece of prose.
func checkWords(name string, line int, prose string) (findings []finding) {
	for _, r := range phrases {
		for _, at := range r.pattern.FindAllStringIndex(prose, -1) {
			found := prose[at[0]:at[1]]
			if !slices.ContainsFunc(r.except, func(e string) bool { return strings.Contains(prose, e) }) {
				findings = append(findings, finding{name, line, fmt.Sprintf("%q", strings.TrimSpace(found)), r.want})
			}
		}
	}
	return findings
}
