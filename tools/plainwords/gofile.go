package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// A goFile is one Go file and what was found in it.
type goFile struct {
	name     string
	fset     *token.FileSet
	findings []finding
}

// checkGo checks comments, string literals, doc comments and identifiers of a Go file.
func checkGo(name string, text []byte) ([]finding, error) {
	f := &goFile{name: name, fset: token.NewFileSet()}
	tree, err := parser.ParseFile(f.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil && !isTestdata(name) { // testdata may contain what the compiler rejects
		return nil, err
	}
	if tree == nil || ast.IsGenerated(tree) {
		return nil, nil
	}
	for _, group := range tree.Comments {
		var prose []string
		for _, c := range group.List {
			prose = append(prose, plain(c.Text))
		}
		f.findings = append(f.findings, checkWords(name, f.line(group.Pos()), strings.Join(prose, "\n"))...)
		f.findings = append(f.findings, checkSentences(name, f.line(group.Pos()), group.Text())...)
	}
	if tree.Doc != nil {
		f.checkPackage(tree)
	}
	ast.Inspect(tree, f.visit)
	return f.findings, nil
}

func isTestdata(name string) bool { return strings.Contains("/"+name, "/testdata/") }

func (f *goFile) line(at token.Pos) int { return f.fset.Position(at).Line }

func (f *goFile) report(at token.Pos, text, want string) {
	f.findings = append(f.findings, finding{f.name, f.line(at), text, want})
}

// visit checks one node and reports whether to go on to its children.
func (f *goFile) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && strings.Contains(text, " ") {
			f.findings = append(f.findings, checkWords(f.name, f.line(n.Pos()), text)...)
		}
	case *ast.FuncDecl:
		f.checkFunc(n)
	case *ast.GenDecl:
		if len(n.Specs) == 1 {
			if t, ok := n.Specs[0].(*ast.TypeSpec); ok {
				f.checkType(t, n.Doc)
			}
		}
	case *ast.TypeSpec:
		f.checkName(n.Name)
		f.checkType(n, n.Doc)
	case *ast.InterfaceType:
		for _, m := range n.Methods.List {
			if len(m.Names) == 1 {
				f.checkDoc(m.Names[0].Name, m.Pos(), m.Doc)
			}
		}
	case *ast.ValueSpec:
		f.checkNames(n.Names...)
	case *ast.Field:
		f.checkNames(n.Names...)
	case *ast.LabeledStmt:
		f.checkName(n.Label)
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			f.checkExprs(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			f.checkExprs(n.Key, n.Value)
		}
	}
	return true
}

// checkPackage checks how a package comment starts: go doc shows its first sentence.
func (f *goFile) checkPackage(tree *ast.File) {
	doc := strings.TrimSpace(tree.Doc.Text())
	ok := strings.HasPrefix(doc, "Package "+tree.Name.Name+" ") || strings.HasSuffix(f.name, "_test.go")
	if tree.Name.Name == "main" {
		ok = strings.HasPrefix(doc, "Command ") || isTestdata(f.name)
	}
	if doc != "" && !ok {
		f.report(tree.Pos(), fmt.Sprintf("the package comment starts with %q", firstWords(doc, 2)), "Package name, or Command name")
	}
}

// testName is the form of test names: -run Type finds the tests of a type.
var testName = regexp.MustCompile(`^Test[A-Z][A-Za-z0-9]*_[A-Z][A-Za-z0-9]*$`)

func (f *goFile) checkFunc(n *ast.FuncDecl) {
	name := n.Name.Name
	f.checkName(n.Name)
	isTest := strings.HasSuffix(f.name, "_test.go") && strings.HasPrefix(name, "Test") && n.Recv == nil
	if isTest && name != "TestMain" && !testName.MatchString(name) {
		f.report(n.Pos(), "test name "+name, "want TestType_Behaviour")
	}
	if !strings.HasPrefix(name, "Example") {
		f.checkDoc(name, n.Pos(), n.Doc)
	}
}

// stateVerb finds comments of functions that describe a state and not an action.
var stateVerb = regexp.MustCompile(`^(is|are|has|was)\b`)

// checkDoc checks how the comment of a function or method starts.
func (f *goFile) checkDoc(name string, at token.Pos, comment *ast.CommentGroup) {
	doc := strings.TrimSpace(comment.Text()) // "" without directives
	switch first, rest, _ := strings.Cut(doc, " "); {
	case doc == "" || strings.HasPrefix(doc, "Deprecated:"):
	case strings.TrimRight(first, ":,") != name:
		f.report(at, fmt.Sprintf("the comment of %s starts with %q", name, first), "start with the name")
	case stateVerb.MatchString(rest) && !strings.HasPrefix(name, "Test") && !isTestdata(f.name):
		f.report(at, fmt.Sprintf("the comment of %s starts with %q", name, firstWords(doc, 3)), "a function does something: returns, reports, creates")
	}
}

// checkType checks how the comment of a type starts: with its name, or an article and it.
func (f *goFile) checkType(t *ast.TypeSpec, comment *ast.CommentGroup) {
	doc := strings.TrimSpace(comment.Text())
	first, rest, _ := strings.Cut(doc, " ")
	if first == "A" || first == "An" || first == "The" {
		first, _, _ = strings.Cut(rest, " ")
	}
	if doc != "" && !strings.HasPrefix(doc, "Deprecated:") && strings.TrimRight(first, ":,") != t.Name.Name {
		f.report(t.Pos(), fmt.Sprintf("the comment of type %s starts with %q", t.Name.Name, firstWords(doc, 2)), "start with the name")
	}
}

func (f *goFile) checkExprs(exprs ...ast.Expr) {
	for _, e := range exprs {
		if id, ok := e.(*ast.Ident); ok {
			f.checkName(id)
		}
	}
}

func (f *goFile) checkNames(ids ...*ast.Ident) {
	for _, id := range ids {
		f.checkName(id)
	}
}

// checkName checks the words of an identifier that is declared.
func (f *goFile) checkName(id *ast.Ident) {
	for _, word := range wordsOf(id.Name) {
		if want, banned := names[word]; banned {
			f.report(id.Pos(), "identifier "+id.Name, "not "+word+": "+want)
		}
	}
}

// wordsOf splits a name into its words, in lower case. It knows camel case with initials
// (HTTPStore), underscores and hyphens.
func wordsOf(name string) (words []string) {
	runes := []rune(name)
	start := 0
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) && !wordStarts(runes, i) {
			continue
		}
		if word := strings.ToLower(strings.Trim(string(runes[start:i]), "_-")); word != "" {
			words = append(words, word)
		}
		start = i
	}
	return words
}

// wordStarts reports whether a word of a name starts at index i > 0.
func wordStarts(name []rune, i int) bool {
	switch {
	case name[i] == '_' || name[i] == '-':
		return true
	case !unicode.IsUpper(name[i]):
		return false
	case !unicode.IsUpper(name[i-1]):
		return true
	}
	return i+1 < len(name) && unicode.IsLower(name[i+1]) // the S of HTTPStore
}
