package pages

import (
	"bytes"
	"fmt"
	"html"
	"regexp"

	"github.com/yuin/goldmark/ast"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// A tableParser makes tables of paragraphs whose second line is a delimiter, such as
// |---|--:|. Package extension of goldmark would do so too, but the patterns of its other
// extensions are compiled when it is initialised, in each run of the program that imports it.
type tableParser struct{}

// Transform implements parser.ParagraphTransformer.
func (tableParser) Transform(paragraph *ast.Paragraph, reader text.Reader, _ parser.Context) {
	lines, source := paragraph.Lines(), reader.Source()
	if lines.Len() < 2 {
		return
	}
	head, delimiter := lines.At(0), lines.At(1)
	columns := alignments(cellsOf(delimiter, source), source)
	cells := cellsOf(head, source)
	if columns == nil || len(cells) != len(columns) {
		return
	}
	table := tables.NewTable()
	table.Alignments = columns
	table.AppendChild(table, tables.NewTableHeader(rowOf(cells, columns)))
	for i := 2; i < lines.Len(); i++ {
		table.AppendChild(table, rowOf(cellsOf(lines.At(i), source), columns))
	}
	paragraph.Parent().ReplaceChild(paragraph.Parent(), paragraph, table)
}

// rowOf returns a row of as many cells as there are columns.
func rowOf(cells []text.Segment, columns []tables.Alignment) *tables.TableRow {
	row := tables.NewTableRow(columns)
	for i, align := range columns {
		cell := tables.NewTableCell()
		cell.Alignment = align
		if i < len(cells) && !cells[i].IsEmpty() {
			cell.Lines().Append(cells[i])
		}
		row.AppendChild(row, cell)
	}
	return row
}

// cellsOf splits a line at each | that is not escaped.
func cellsOf(line text.Segment, source []byte) (cells []text.Segment) {
	trim := func(s text.Segment) text.Segment {
		s = s.TrimLeftSpace(source)
		return s.TrimRightSpace(source)
	}
	line = trim(line)
	if line.Len() > 0 && source[line.Start] == '|' {
		line = line.WithStart(line.Start + 1)
	}
	if n := line.Stop; line.Len() > 0 && source[n-1] == '|' && (line.Len() == 1 || source[n-2] != '\\') {
		line = line.WithStop(n - 1)
	}
	start := line.Start
	for i := start; i < line.Stop; i++ {
		if source[i] == '|' && (i == start || source[i-1] != '\\') {
			cells = append(cells, trim(text.NewSegment(start, i)))
			start = i + 1
		}
	}
	return append(cells, trim(text.NewSegment(start, line.Stop)))
}

// alignments returns the alignment that each cell of a delimiter states, nil if one of them
// is something else.
func alignments(cells []text.Segment, source []byte) (columns []tables.Alignment) {
	for _, c := range cells {
		value := c.Value(source)
		dashes := bytes.Trim(value, ":")
		if len(dashes) == 0 || len(bytes.Trim(dashes, "-")) > 0 {
			return nil
		}
		left, right := value[0] == ':', value[len(value)-1] == ':'
		switch {
		case left && right:
			columns = append(columns, tables.AlignCenter)
		case right:
			columns = append(columns, tables.AlignRight)
		case left:
			columns = append(columns, tables.AlignLeft)
		default:
			columns = append(columns, tables.AlignNone)
		}
	}
	return columns
}

// longest is the length, in bytes, up to which a cell is a figure or a few words. Figures are
// kept in one line, and a longer text gets a column to read on a phone.
const longest = 24

// A tableRenderer renders tables in a frame that scrolls where they are too wide. A heading
// without text is a plain cell, and a row of such headings is left out: a screen reader would
// announce each as an empty heading.
type tableRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (tableRenderer) RegisterFuncs(to renderer.NodeRendererFuncRegisterer) {
	pair := func(open, end string) renderer.NodeRendererFunc {
		return func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
			markup := end
			if entering {
				markup = open
			}
			_, err := w.WriteString(markup)
			return ast.WalkContinue, err
		}
	}
	row := pair("<tr>", "</tr>\n")
	to.Register(tables.KindTable, pair(`<div class="table"><table>`+"\n", "</table></div>\n"))
	to.Register(tables.KindTableRow, row)
	to.Register(tables.KindTableHeader, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		for cell := n.FirstChild(); cell != nil; cell = cell.NextSibling() {
			if cell.FirstChild() != nil {
				return row(w, source, n, entering)
			}
		}
		return ast.WalkSkipChildren, nil
	})
	to.Register(tables.KindTableCell, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if heads(n.Parent()) {
			markup := "</span></th>"
			if n.PreviousSibling() != nil {
				return ast.WalkSkipChildren, nil
			} else if entering {
				markup = fmt.Sprintf(`<th colspan="%d" scope="colgroup"><span>`, n.Parent().ChildCount())
			}
			_, err := w.WriteString(markup)
			return ast.WalkContinue, err
		}
		name := "td"
		if n.Parent().Kind() == tables.KindTableHeader && n.FirstChild() != nil {
			name = "th"
		}
		markup := "</" + name + ">"
		if cell, ok := n.(*tables.TableCell); entering && ok {
			markup = "<" + name
			if cell.Alignment != tables.AlignNone {
				markup += ` align="` + cell.Alignment.String() + `"`
			}
			if len(cell.Lines().Value(source)) > longest {
				markup += ` class="long"`
			}
			markup += ">"
		}
		_, err := w.WriteString(markup)
		return ast.WalkContinue, err
	})
	to.Register(ast.KindCodeSpan, func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		code := html.EscapeString(codeOf(n, source))
		if inCell(n) {
			code = breakable(code)
		}
		_, err := w.WriteString("<code>" + code + "</code>")
		return ast.WalkSkipChildren, err
	})
}

// heads reports whether a row is a heading for the rows below it: its first cell is in bold, and
// the others are empty.
func heads(row ast.Node) bool {
	first := row.FirstChild()
	bold, ok := first.FirstChild().(*ast.Emphasis)
	if row.Kind() != tables.KindTableRow || !ok || bold.Level != 2 || bold.NextSibling() != nil || row.ChildCount() < 3 {
		return false
	}
	for cell := first.NextSibling(); cell != nil; cell = cell.NextSibling() {
		if cell.FirstChild() != nil {
			return false
		}
	}
	return true
}

// codeOf returns the text of a code span. In a table, a | in it is escaped.
func codeOf(span ast.Node, source []byte) string {
	var code []byte
	for n := span.FirstChild(); n != nil; n = n.NextSibling() {
		if t, ok := n.(*ast.Text); ok {
			code = append(code, t.Segment.Value(source)...)
		}
	}
	code = bytes.ReplaceAll(code, []byte("\n"), []byte(" "))
	if inCell(span) {
		code = bytes.ReplaceAll(code, []byte(`\|`), []byte("|"))
	}
	return string(code)
}

// inCell reports whether a node is in a cell of a table.
func inCell(n ast.Node) bool {
	for n = n.Parent(); n != nil; n = n.Parent() {
		if n.Kind() == tables.KindTableCell {
			return true
		}
	}
	return false
}

// A seam is where a long name may continue in the next line: after a sign that joins names, and
// between the words of a very long one.
var seam, wordSeam = regexp.MustCompile(`[/_.(]`), regexp.MustCompile(`[/_.(]|[a-z][A-Z]`)

// breakable returns code whose long names do not widen the column of a phone.
func breakable(code string) string {
	at := seam
	switch {
	case len(code) <= 16:
		return code
	case len(code) > 32:
		at = wordSeam
	}
	return at.ReplaceAllStringFunc(code, func(s string) string { return s[:1] + "<wbr>" + s[1:] })
}
