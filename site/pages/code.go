package pages

import (
	"fmt"
	"go/scanner"
	"go/token"
	"html"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"
)

// A codeRenderer renders blocks of code. Go is marked by its tokens, and comments of shell
// commands by their sign; other languages are plain. A library for highlighting would be a
// few megabytes of grammars for these two.
type codeRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (r codeRenderer) RegisterFuncs(to renderer.NodeRendererFuncRegisterer) {
	to.Register(ast.KindFencedCodeBlock, r.render)
	to.Register(ast.KindCodeBlock, r.render)
}

func (codeRenderer) render(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	var code strings.Builder
	for i := range n.Lines().Len() {
		line := n.Lines().At(i)
		code.Write(line.Value(source))
	}
	language := ""
	if fenced, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(fenced.Language(source))
	}
	_, err := w.WriteString(`<div class="code` + fit(code.String(), language) + `"><pre><code>` + highlight(code.String(), language) + "</code></pre></div>\n")
	return ast.WalkSkipChildren, err
}

// fit returns the class of a drawing or an output that makes its text small enough to fit the
// page: a drawing cannot be read in parts. site.css has the classes.
func fit(code, language string) string {
	if language != "" && language != "text" {
		return ""
	}
	columns := 0
	for line := range strings.Lines(code) {
		columns = max(columns, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	for _, limit := range []int{40, 56, 72, 88, 104, 120} {
		if columns <= limit {
			return fmt.Sprintf(" fit%d", limit)
		}
	}
	return ""
}

// highlight returns code as HTML.
func highlight(code, language string) string {
	switch language {
	case "go":
		return highlightGo(code)
	case "sh", "shell", "bash", "yaml", "toml":
		return highlightComments(code)
	}
	return html.EscapeString(code)
}

func span(class, text string) string {
	return `<span class="` + class + `">` + html.EscapeString(text) + "</span>"
}

// highlightGo marks keywords, literals and comments. Code that is not complete, such as the
// body of a function, has tokens all the same.
func highlightGo(code string) string {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(code))
	s.Init(file, []byte(code), func(token.Position, string) {}, scanner.ScanComments)
	var out strings.Builder
	end := 0 // of what has been written
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			break
		}
		class := ""
		switch {
		case tok.IsKeyword():
			class = "k"
		case tok == token.COMMENT:
			class = "c"
		case tok == token.STRING, tok == token.CHAR:
			class = "s"
		case tok == token.INT, tok == token.FLOAT, tok == token.IMAG:
			class = "n"
		}
		at := file.Offset(pos)
		if class == "" || at < end || at+len(literal) > len(code) || code[at:at+len(literal)] != literal {
			continue // written with the next token that is marked
		}
		out.WriteString(html.EscapeString(code[end:at]))
		out.WriteString(span(class, literal))
		end = at + len(literal)
	}
	out.WriteString(html.EscapeString(code[end:]))
	return out.String()
}

// highlightComments marks what follows a # at the beginning of a line or after a space.
func highlightComments(code string) string {
	var out strings.Builder
	for line := range strings.Lines(code) {
		at := strings.Index(" "+line, " #")
		if at < 0 {
			out.WriteString(html.EscapeString(line))
			continue
		}
		comment := strings.TrimSuffix(line[at:], "\n")
		out.WriteString(html.EscapeString(line[:at]) + span("c", comment) + line[at+len(comment):])
	}
	return out.String()
}
