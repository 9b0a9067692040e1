// Package reference extracts the exported symbols of the packages of this repository, for the
// page of the site that lists them. It reads the source, so it runs in a checkout only; its
// result is a file of package pages.
package reference

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sema-go/sema/site/pages"
)

// skipped are directories whose packages are not for users of the library.
var skipped = []string{"bench", "cmd", "deploy", "docs", "examples", "scripts", "site", "tools", "x/examples", "x/play", "x/semav1"}

// Read returns the packages below a directory, which is the root of the checkout, in the
// order of their paths.
func Read(root string) ([]pages.Package, error) {
	var all []pages.Package
	err := filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if base := d.Name(); name != "." && (slices.Contains(skipped, name) || base == "internal" || base == "testdata" || strings.HasPrefix(base, ".")) {
			return fs.SkipDir
		}
		p, err := read(dir, name)
		if err != nil {
			return fmt.Errorf("package %s: %w", name, err)
		}
		if len(p.Symbols) > 0 {
			all = append(all, p)
		}
		return nil
	})
	return all, err
}

// read returns the package of a directory as it is on Linux; it has no symbols if the directory
// has no Go files.
func read(dir, name string) (p pages.Package, err error) {
	where := build.Default
	where.GOOS, where.GOARCH, where.CgoEnabled = "linux", "amd64", false
	files, err := where.ImportDir(dir, 0)
	if _, none := err.(*build.NoGoError); none {
		return p, nil
	} else if err != nil {
		return p, err
	}
	set := token.NewFileSet()
	var parsed []*ast.File
	for _, f := range files.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(dir, f), nil, parser.ParseComments)
		if err != nil {
			return p, err
		}
		parsed = append(parsed, file)
	}
	p.Path = path.Join("github.com/sema-go/sema", name)
	d, err := doc.NewFromFiles(set, parsed, p.Path)
	if err != nil {
		return p, err
	}
	p.Name, p.Doc = d.Name, d.Doc
	add := func(symbol string, decl ast.Node, comment string) {
		p.Symbols = append(p.Symbols, pages.Symbol{Name: symbol, Declaration: declaration(set, decl), Text: d.Synopsis(comment)})
	}
	values := func(groups []*doc.Value) {
		for _, g := range groups {
			for _, spec := range g.Decl.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok {
					continue
				}
				comment := g.Doc
				if text := v.Doc.Text() + v.Comment.Text(); text != "" {
					comment = text
				}
				for _, n := range v.Names {
					if n.IsExported() {
						add(n.Name, &ast.GenDecl{Tok: g.Decl.Tok, Specs: []ast.Spec{&ast.ValueSpec{Names: []*ast.Ident{n}, Type: v.Type}}}, comment)
					}
				}
			}
		}
	}
	functions := func(all []*doc.Func, prefix string) {
		for _, f := range all {
			add(prefix+f.Name, &ast.FuncDecl{Recv: f.Decl.Recv, Name: f.Decl.Name, Type: f.Decl.Type}, f.Doc)
		}
	}
	values(d.Consts)
	values(d.Vars)
	functions(d.Funcs, "")
	for _, t := range d.Types {
		add(t.Name, ast.NewIdent("type "+t.Name), t.Doc)
		values(t.Consts)
		values(t.Vars)
		functions(t.Funcs, "")
		functions(t.Methods, t.Name+".")
		members(t, add)
	}
	return p, nil
}

// members adds the exported fields of a struct and the methods of an interface.
func members(t *doc.Type, add func(symbol string, decl ast.Node, comment string)) {
	for _, spec := range t.Decl.Specs {
		s, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		var list []*ast.Field
		kind := "field "
		switch of := s.Type.(type) {
		case *ast.StructType:
			list = of.Fields.List
		case *ast.InterfaceType:
			list, kind = of.Methods.List, "method "
		}
		for _, f := range list {
			for _, n := range f.Names {
				if n.IsExported() {
					add(t.Name+"."+n.Name, ast.NewIdent(kind+n.Name), f.Doc.Text()+f.Comment.Text())
				}
			}
		}
	}
}

// declaration returns a declaration on one line.
func declaration(set *token.FileSet, decl ast.Node) string {
	if name, ok := decl.(*ast.Ident); ok {
		return name.Name
	}
	var out strings.Builder
	if err := format.Node(&out, set, decl); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(out.String()), " ")
}
