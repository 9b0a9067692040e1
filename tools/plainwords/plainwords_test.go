package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckWords_FindsReplacedWords(t *testing.T) {
	t.Parallel()
	for prose, want := range map[string]string{
		"Who waits already looks every 40 ms":          `"Who"`,
		"a minute unless told":                         `"unless told"`,
		"the engine said so":                           `"engine"`,
		"gives them back":                              `"gives them back"`,
		"X is when a batch is sent":                    `"is when"`,
		"nobody holds it":                              `"nobody"`,
		"the next sign of life":                        `"sign of life"`,
		"it has the caller be one of them":             `"has the caller be"`,
		"A waiting process polls every 40 ms.":         "",
		"the deadline of a caller whose context ended": "",
		"connection refused":                           "",
		"a non-dead word":                              "",
		"answerable":                                   "",
		"a minute unless\ntold":                        `"unless told"`,
		"the first in\nline":                           `"first in line"`,
		"an old outcome":                               `"outcome"`,
		"the label result (was `outcome`)":             "",
		"sema_acquires_total{outcome=\"timeout\"}":     "",
		"what people see":                              `"people"`,
		"the permit is back":                           `"is back"`,
		"it is not unused":                             `"not unused"`,
		"refused the request":                          `"refused"`,
	} {
		var found []string
		for _, f := range checkWords("f", 1, prose) {
			found = append(found, f.text)
		}
		if want == "" && len(found) > 0 || want != "" && !slices.ContainsFunc(found, func(f string) bool { return strings.EqualFold(f, want) }) {
			t.Errorf("%q: found %q, want %s", prose, found, want)
		}
	}
}

// source is a file with one finding in each line that has a comment "want".
const source = `package p

// A thing is a type.
type thing struct {
	heard int // want
}

// size is the size. want:1
func (t thing) size() int { return 0 }

// grow makes it larger.
func (t thing) grow() {
	told := "somebody is here" // want want
	_ = told
}

// It closes. want:1
func shut() {}

// Deprecated: use grow.
func old() {}

//go:noinline
func directive() {}

func helper(engine string) { // want
	for _, verdict := range engine { // want
		_ = verdict
	}
}

// HTTPEngine serves. want:1
type HTTPEngine struct{}

// It is a list. want:1
type list []int

// The order is ascending.
type order int

type store interface {
	// Open opens.
	Open()
	// Will be called last. want:1
	Close()
}
`

func TestCheckGo_ReportsNamesAndComments(t *testing.T) {
	t.Parallel()
	found, err := checkGo("p.go", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]int{}
	for i, line := range strings.Split(source, "\n") {
		if n := strings.Count(line, "want"); n > 0 && strings.Contains(line, "want:1") {
			want[i+2]++
		} else if n > 0 {
			want[i+1] += n
		}
	}
	got := map[int]int{}
	for _, f := range found {
		got[f.line]++
	}
	for line := 1; line <= strings.Count(source, "\n"); line++ {
		if got[line] != want[line] {
			t.Errorf("line %d: %d findings, want %d: %v", line, got[line], want[line], found)
		}
	}
}

func TestCheckGo_WantsTestNamesByType(t *testing.T) {
	t.Parallel()
	const tests = "package p\n\nfunc TestItWorks(t *T) {}\n\nfunc TestPool_ReturnsItems(t *T) {}\n\nfunc TestMain(m *M) {}\n"
	found, err := checkGo("p_test.go", []byte(tests))
	if err != nil || len(found) != 1 || found[0].line != 3 {
		t.Errorf("%v, %v; want the first test alone", found, err)
	}
}

func TestCheckGo_ChecksPackageComments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"// Package p counts.\npackage p\n":     0,
		"// Counting.\npackage p\n":             1,
		"// Command p counts.\npackage main\n":  0,
		"// Package main counts.\npackage main": 1,
	} {
		if found, err := checkGo("p.go", []byte(text)); err != nil || len(found) != want {
			t.Errorf("%q: %v, %v; want %d findings", text, found, err, want)
		}
	}
}

func TestCheckGo_LimitsSentences(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("word ", maxSentence-2)
	for doc, want := range map[string]int{
		"// f does " + words + ".":                         0,
		"// f does it " + words + ".":                      1,
		"// f does " + words + ": it does " + words:        0,
		"// f does:\n//\n//\tcode " + words + words + "\n": 0,
	} {
		if found, err := checkGo("p.go", []byte("package p\n\n"+doc+"\nfunc f() {}\n")); err != nil || len(found) != want {
			t.Errorf("%q: %v, %v; want %d findings", doc, found, err, want)
		}
	}
}

// TestCheckGo_AcceptsInvalidTestdata checks that the files of other checkers' tests are
// read although they do not compile.
func TestCheckGo_AcceptsInvalidTestdata(t *testing.T) {
	t.Parallel()
	const invalid = "package p\n\n// nobody reads this\nfunc f() { defer (g()) }\n"
	if found, err := checkGo("testdata/p.go", []byte(invalid)); err != nil || len(found) == 0 {
		t.Errorf("%v, %v; want the comment", found, err)
	}
	if _, err := checkGo("p.go", []byte(invalid)); err == nil {
		t.Error("a file that is not a test's input is accepted with a syntax error")
	}
}

// TestCheckFile_CoversAllKinds checks the kinds of files that contain prose.
func TestCheckFile_CoversAllKinds(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a.go":              "package p\n\nconst usage = `the help\nis told`\n",
		"docs/a.md":         "# Title\n\nThe default is a minute unless\ntold.\n",
		"a.lua":             "-- the value that was\n-- told\n",
		"a.sql":             "-- was told\n",
		"a.proto":           "// was told\n",
		"templates/a.html":  "<p>was told</p>",
		"deploy/a.yaml":     "# was told\n",
		"a.json":            `{"description": "was told"}`,
		"a.js":              "// was told\n",
		"a.css":             "/* was told */\n",
		"a.c":               "/* was told */\n",
		"a.py":              "# was told\n",
		"a.sh":              "# was told\n",
		"a.svg":             "<text>was told</text>",
		"a.service":         "# was told\n",
		"a.pml":             "/* was told */\n",
		"Makefile":          "# was told\n",
		"Dockerfile":        "# was told\n",
		"testdata/list.txt": "was told\n",
		"fate.go":           "package p\n",
	} {
		if found, err := checkFile(name, []byte(text)); err != nil || len(found) != 1 {
			t.Errorf("%s: %v, %v; want one finding", name, found, err)
		}
	}
	if found, err := checkFile("icon.png", []byte("\x00 was told")); err != nil || len(found) > 0 {
		t.Errorf("%v, %v; want nothing of a binary file", found, err)
	}
}

func TestWordsOf_SplitsNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"HTTPStore": "http store", "toldOf": "told of", "TestPool_Fate": "test pool fate",
		"list-132x30": "list 132x30", "_": "", "x": "x", "ID": "id",
	} {
		if got := strings.Join(wordsOf(name), " "); got != want {
			t.Errorf("wordsOf(%q) is %q, want %q", name, got, want)
		}
	}
}

func TestCheckTree_ExemptsGeneratedFiles(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"x/semav1/sema.pb.go": true, "x/semav1connect/sema.connect.go": true, "tools/plainwords/rules.go": true, "sema.go": false} {
		if exempt(name) != want {
			t.Errorf("exempt(%q) is %v", name, !want)
		}
	}
	const generated = "// Code generated by protoc. DO NOT EDIT.\n\npackage p\n\n// nobody reads this\nvar x int\n"
	if found, err := checkGo("p.go", []byte(generated)); err != nil || len(found) > 0 {
		t.Errorf("%v, %v; want nothing of a generated file", found, err)
	}
}
