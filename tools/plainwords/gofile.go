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
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(tree) {
		return nil, nil
	}
	for _, group := range tree.Comments {
		for _, c := range group.List {
			for i, line := range strings.Split(c.Text, "\n") {
				f.findings = append(f.findings, checkWords(name, f.line(c.Pos())+i, line)...)
			}
		}
	}
	ast.Inspect(tree, f.visit)
	return f.findings, nil
}

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
	case *ast.TypeSpec:
		f.checkName(n.Name)
	case *ast.ValueSpec:
		for _, id := range n.Names {
			f.checkName(id)
		}
	case *ast.Field:
		for _, id := range n.Names {
			f.checkName(id)
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok {
					f.checkName(id)
				}
			}
		}
	}
	return true
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
	if n.Doc == nil {
		return
	}
	doc := strings.TrimSpace(n.Doc.Text())
	switch first, rest, _ := strings.Cut(doc, " "); {
	case doc == "": // directives only
	case first != name && first != name+":" && !strings.HasPrefix(doc, "Deprecated:") && !strings.HasPrefix(name, "Example"):
		f.report(n.Pos(), fmt.Sprintf("the comment of %s starts with %q", name, first), "start with the name")
	case regexp.MustCompile(`^(is|are|has|was)\b`).MatchString(rest) && !strings.HasPrefix(name, "Test"):
		f.report(n.Pos(), fmt.Sprintf("the comment of %s starts with %q", name, firstWords(doc, 3)), "a function does something: returns, reports, creates")
	}
}

func firstWords(s string, n int) string {
	words := strings.Fields(s)
	return strings.Join(words[:min(n, len(words))], " ")
}

// checkName checks the words of an identifier that is declared.
func (f *goFile) checkName(id *ast.Ident) {
	for _, word := range wordsOf(id.Name) {
		if want, banned := names[word]; banned {
			f.report(id.Pos(), "identifier "+id.Name, "not "+word+": "+want)
		}
	}
}

// wordsOf splits a name in camel case into its words, in lower case.
func wordsOf(name string) (words []string) {
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) || runes[i] == '_' {
			words = append(words, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
			start = i
		}
	}
	return words
}
