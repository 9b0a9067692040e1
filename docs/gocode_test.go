package docs

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// runTimeout bounds one run of the compiler or of a program. It ends what hangs, also on a
// machine that is slow and busy.
const runTimeout = 10 * time.Minute

// modules are the modules whose packages the blocks may import.
var modules = []string{".", "x", "bench", "cmd/sema", "cmd/semavet"}

// TestGo_Compiles compiles each block of Go, and vets it. A block is a file, declarations, or
// statements of a function. What statements and declarations use without declaring it comes
// from testdata/preludes: one file for each page. Imports need not be written. The character
// … stands for what is left out.
func TestGo_Compiles(t *testing.T) {
	t.Parallel()
	w := newWorkspace(t)
	for i, b := range blocksOf(t, "go") {
		if strings.HasPrefix(b.note, prefixUnrun) || strings.HasPrefix(b.note, prefixTested) {
			continue
		}
		parts := []*block{b}
		if b.note == noteEachLine {
			parts = lines(b)
		}
		for j, part := range parts {
			text, err := complete(part)
			if err != nil {
				t.Errorf("%s: %v", b.where(), err)
				continue
			}
			w.write(t, fmt.Sprintf("block%d_%d/block%s.go", i, j, suffix(text)), text)
		}
	}
	// A return is added to statements, also where they end in a select of returns.
	if out, err := w.run("go", "vet", "-unreachable=false", "./..."); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestGo_Prints runs the programs whose output the page shows.
func TestGo_Prints(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("programs use signals and package host")
	}
	w := newWorkspace(t)
	for i, b := range blocksOf(t, "go") {
		want, shown := b.output()
		if !shown {
			continue
		}

		name := fmt.Sprintf("program%d", i)
		w.write(t, name+"/main.go", b.code)
		t.Run(strings.ReplaceAll(b.where(), "/", "."), func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), name)
			if out, err := w.run("go", "build", "-o", binary, "./"+name); err != nil {
				t.Fatalf("%s: %v\n%s", b.where(), err, out)
			}
			ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary)
			cmd.Dir = t.TempDir()
			var out, logged bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &logged
			if err := cmd.Run(); err != nil || !matches(want, out.String()) {
				t.Errorf("%s: %v, printed\n%s\nwant\n%s\nlogged\n%s", b.where(), err, &out, want, &logged)
			}
		})
	}
}

// matches reports whether a text is what a page shows, in which … stands for any text.
func matches(want, got string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(want)), "…", "(?s:.*?)")
	got = regexp.MustCompile(`(?m)[ \t]+$`).ReplaceAllString(got, "") // no page shows spaces at the end of a line
	return regexp.MustCompile("^" + pattern + "$").MatchString(strings.TrimSpace(got))
}

// lines returns each line of a block as a block of its own.
func lines(b *block) (parts []*block) {
	for i, line := range strings.Split(strings.TrimSpace(b.code), "\n") {
		parts = append(parts, &block{page: b.page, line: b.line + i, lang: b.lang, code: line + "\n"})
	}
	return parts
}

// suffix returns what the name of a file needs: _test if it declares tests.
func suffix(text string) string {
	if strings.Contains(text, "(t *testing.T)") || strings.Contains(text, "(b *testing.B)") {
		return "_test"
	}
	return ""
}

// complete returns a file that contains a block.
func complete(b *block) (string, error) {
	code := ellipsis(b.code)
	position := fmt.Sprintf("//line %s:%d\n", b.page.name, b.line)
	if regexp.MustCompile(`(?m)^package `).MatchString(code) {
		return position + code, nil
	}
	body := position + code
	if !regexp.MustCompile(`(?m)^(func|type|const) `).MatchString(code) { // statements
		var err error
		if body, err = function(position, code); err != nil {
			return "", err
		}
	} else { // declarations, with variables in their short form
		body = regexp.MustCompile(`(?m)^(\w+(?:, \w+)*) := `).ReplaceAllString(body, "var $1 = ")
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package block\n"+body, 0)
	if err != nil {
		return "", err
	}
	prelude, err := preludeOf(b.page.name, file)
	if err != nil {
		return "", err
	}
	whole, err := parser.ParseFile(token.NewFileSet(), "", "package block\n"+body+prelude, 0)
	if err != nil {
		return "", err
	}
	return "package block\n" + importsOf(whole) + body + prelude, nil
}

// ellipsis returns code without the … that stand for what is left out, except in strings and
// comments, where they stay.
func ellipsis(code string) string {
	whole := regexp.MustCompile(`(?m)^(\s*)…\s*$`)
	code = whole.ReplaceAllString(code, "$1")
	return regexp.MustCompile(`\{ … \}`).ReplaceAllString(code, "{ }")
}

// function returns a function that contains statements, and uses the variables that they
// declare.
func function(position, code string) (string, error) {
	wrap := func(end string) string {
		return "func block() (result_ error) {\n" + position + code + end + "}\n"
	}
	file, err := parser.ParseFile(token.NewFileSet(), "", "package block\n"+wrap(""), 0)
	if err != nil {
		return "", err
	}
	statements := file.Decls[0].(*ast.FuncDecl).Body.List
	var end strings.Builder
	for _, s := range statements {
		for _, name := range declared(s) {
			fmt.Fprintf(&end, "_ = &%s\n", name)
		}
	}
	if _, returns := statements[len(statements)-1].(*ast.ReturnStmt); returns {
		return wrap(""), nil
	}
	return wrap(end.String() + "return nil\n"), nil
}

// declared returns the variables that a statement declares.
func declared(s ast.Stmt) (names []string) {
	add := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" {
			names = append(names, id.Name)
		}
	}
	switch s := s.(type) {
	case *ast.AssignStmt:
		if s.Tok == token.DEFINE {
			for _, e := range s.Lhs {
				add(e)
			}
		}
	case *ast.DeclStmt:
		for _, spec := range s.Decl.(*ast.GenDecl).Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				for _, name := range v.Names {
					add(name)
				}
			}
		}
	}
	return names
}

// preludeOf returns the declarations of the preludes of all pages and of this one that the
// block does not make itself.
func preludeOf(pageName string, b *ast.File) (string, error) {
	own := make(map[string]bool)
	for _, d := range b.Decls {
		for _, n := range namesOf(d) {
			own[n] = true
		}
	}
	var kept strings.Builder
	for _, prelude := range []string{strings.ReplaceAll(strings.TrimSuffix(pageName, ".md"), "/", "_"), "common"} {
		name := filepath.Join("testdata", "preludes", prelude+".go")
		text, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue
		} else if err != nil {
			return "", err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, text, 0)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&kept, "//line docs/%s:1\n", filepath.ToSlash(name))
		for _, d := range file.Decls {
			names := namesOf(d)
			if slices.ContainsFunc(names, func(n string) bool { return own[n] }) {
				continue
			}
			for _, n := range names {
				own[n] = true
			}
			kept.Write(text[files.Position(d.Pos()).Offset:files.Position(d.End()).Offset])
			kept.WriteByte('\n')
		}
	}
	return kept.String(), nil
}

// namesOf returns the names that a declaration declares.
func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
			}
		}
	}
	return names
}

// importable are the packages that blocks use without an import, by the name that they have
// there.
var importable = sync.OnceValue(func() map[string]string {
	found := make(map[string]string)
	for _, p := range strings.Fields(`bytes context database/sql encoding/json errors fmt io io/fs container/list iter log log/slog
		net net/http os os/exec os/signal path/filepath runtime slices strconv strings sync sync/atomic
		syscall testing testing/synctest time maps math/rand/v2`) {
		found[path.Base(p)] = p
	}
	found["rand"] = "math/rand/v2"
	const sema = "github.com/sema-go/sema"
	found["sema"] = sema
	for _, p := range strings.Fields(`admit classic fleet group host host/posix host/sysv pool rate registry sematest tune wfq
		fleet/memstore x/grpcadmit x/pgstore x/redisstore x/sqlitestore x/etcdstore x/stores x/server x/prom x/otel`) {
		found[path.Base(p)] = sema + "/" + p
	}
	for name, p := range map[string]string{
		"errgroup": "golang.org/x/sync/errgroup", "semaphore": "golang.org/x/sync/semaphore",
		"prometheus": "github.com/prometheus/client_golang/prometheus", "promhttp": "github.com/prometheus/client_golang/prometheus/promhttp",
		"pgx": "github.com/jackc/pgx/v5", "redsync": "github.com/go-redsync/redsync/v4",
		"goredis": "github.com/go-redsync/redsync/v4/redis/goredis/v9", "redis": "github.com/redis/go-redis/v9",
		"clientv3": "go.etcd.io/etcd/client/v3", "concurrency": "go.etcd.io/etcd/client/v3/concurrency",
	} {
		found[name] = p
	}
	return found
})

// importsOf returns the imports of a file that lacks them.
func importsOf(file *ast.File) string {
	used := make(map[string]string)
	own := make(map[string]bool)
	for _, i := range file.Imports {
		name := path.Base(strings.Trim(i.Path.Value, `"`))
		if i.Name != nil {
			name = i.Name.Name
		}
		own[name] = true
	}
	for _, id := range file.Unresolved {
		if p := importable()[id.Name]; p != "" && !own[id.Name] {
			used[id.Name] = p
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&text, "import %s %s\n", name, strconv.Quote(used[name]))
	}
	return text.String()
}

// A workspace is a directory with a module of its own, which may import the packages of all
// modules of the checkout.
type workspace struct{ directory string }

func newWorkspace(t *testing.T) workspace {
	t.Helper()
	w := workspace{t.TempDir()}
	w.initialize(t)
	return w
}

// initialize makes the directory a module in a workspace with the modules of the checkout.
func (w workspace) initialize(t *testing.T) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(root, "go.work.sum"))
	if err != nil {
		t.Skip("this is no checkout: ", err)
	}
	var work bytes.Buffer
	work.WriteString("go 1.26.0\n\nuse .\n")
	for _, m := range modules {
		absolute, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(m)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&work, "use %s\n", strconv.Quote(filepath.ToSlash(absolute)))
	}
	w.write(t, "go.work", work.String())
	w.write(t, "go.work.sum", string(sums))
	w.write(t, "go.mod", "module blocks\n\ngo 1.26.0\n")
}

func (w workspace) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(w.directory, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w workspace) run(command ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = w.directory
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(w.directory, "go.work"), "GOFLAGS=")
	return cmd.CombinedOutput()
}
