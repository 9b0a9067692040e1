// Command plainwords checks the language of a source tree: words that the glossary
// replaces, doc comments that do not start with the name they describe, sentences that are
// too long, identifiers, file names and test names.
//
//	plainwords [-C dir] [file or directory ...]
//
// Without arguments it checks all files that git tracks in the directory, or would track.
// It prints one line per finding, with what to write instead, and exits with status 1 if
// there are any. In Go files it checks comments, string literals and declared names; of
// other text files every line, which includes scripts, templates, schemas and charts.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
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

// checkTree checks the files below dir that start with one of the paths, or all.
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
	generated := []string{".pb.go", ".connect.go", ".min.js", ".sum", "LICENSE"}
	return slices.ContainsFunc(generated, func(end string) bool { return strings.HasSuffix(name, end) }) ||
		strings.HasPrefix(name, "tools/plainwords/")
}

// checkFile checks the name of a file and its text by its kind.
func checkFile(name string, text []byte) (findings []finding, err error) {
	base, _, _ := strings.Cut(path.Base(name), ".")
	for _, word := range wordsOf(base) {
		if want, banned := names[word]; banned {
			findings = append(findings, finding{name, 1, "file name " + base, "not " + word + ": " + want})
		}
	}
	switch {
	case path.Ext(name) == ".go":
		found, err := checkGo(name, text)
		return append(findings, found...), err
	case !bytes.ContainsRune(text, 0): // not a binary file
		return append(findings, checkWords(name, 1, plain(string(text)))...), nil
	}
	return findings, nil
}

// plain replaces the marks at the start of lines (comments, quotes, list items), so that a
// phrase that goes over the end of a line is found. It keeps the number of lines.
func plain(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, " \t/#*>-")
	}
	return strings.Join(lines, "\n")
}
