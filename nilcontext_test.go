package sema_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sema-go/sema"
)

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// TestNilContext_IsInvalidEverywhere checks that a nil context is ErrInvalid for every
// function that takes a context and returns an error.
func TestNilContext_IsInvalidEverywhere(t *testing.T) {
	checked := map[string]bool{}
	check := func(name string, f reflect.Value, args ...any) {
		checked[name] = true
		in := make([]reflect.Value, 0, f.Type().NumIn())
		for i := range f.Type().NumIn() {
			switch {
			case f.Type().In(i) == contextType:
				in = append(in, reflect.Zero(contextType))
			case len(args) > 0 && f.Type().IsVariadic() && i == f.Type().NumIn()-1:
				in = append(in, reflect.ValueOf(args[0]))
			case len(args) > 0:
				in, args = append(in, reflect.ValueOf(args[0])), args[1:]
			case f.Type().IsVariadic() && i == f.Type().NumIn()-1:
			default:
				in = append(in, reflect.ValueOf(1).Convert(f.Type().In(i)))
			}
		}
		out := f.Call(in)
		err, _ := out[len(out)-1].Interface().(error)
		if !errors.Is(err, sema.ErrInvalid) || !strings.Contains(err.Error(), "nil context") || sema.Hint(err) == "" {
			t.Errorf("%s: %v, want ErrInvalid and a hint", name, err)
		}
	}
	s := sema.New(1)
	for _, receiver := range []any{s, sema.NewStriped(1), sema.NewCounter(1, 1), sema.NewSpin(1), sema.New(1, sema.Observe(new(journal)), sema.Diagnose(sema.DiagnoseFull))} {
		v := reflect.ValueOf(receiver)
		for i := range v.NumMethod() {
			m := v.Method(i).Type()
			if m.NumIn() > 0 && m.In(0) == contextType && m.NumOut() > 0 && m.Out(m.NumOut()-1) == errorType {
				check(v.Elem().Type().Name()+"."+v.Type().Method(i).Name, v.Method(i))
			}
		}
	}
	check("AcquireAll", reflect.ValueOf(sema.AcquireAll), sema.Want{Gate: s, N: 1})
	check("Do", reflect.ValueOf(sema.Do), lenientGate{}, int64(1), func(context.Context) error { return nil })
	if st := s.Stats(); st.InUse != 0 || st.Counts != (sema.Counts{}) {
		t.Errorf("%+v", st)
	}

	exempt := []string{
		"Weighted.Acquire", // panics, as in x/sync
		"Gate.Acquire", "Gate.TryAcquire",
	}
	for _, name := range functionsWithContext(t) {
		if !checked[name] && !slices.Contains(exempt, name) {
			t.Errorf("%s takes a context and returns an error, and is not checked", name)
		}
	}
}

// A lenientGate does not check its context.
type lenientGate struct{}

func (lenientGate) Acquire(context.Context, int64) (sema.Permit, error) { return sema.Permit{}, nil }
func (g lenientGate) TryAcquire(ctx context.Context, n int64) (sema.Permit, error) {
	return g.Acquire(ctx, n)
}

// functionsWithContext returns the exported functions and methods declared in the
// package that take a context and return an error.
func functionsWithContext(t *testing.T) (names []string) {
	files, err := os.ReadDir(".")
	wantErr(t, err, nil)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		wantErr(t, err, nil)
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !fn.Name.IsExported() || !takesContext(fn.Type) {
				continue
			}
			name := fn.Name.Name
			if fn.Recv != nil {
				receiver := fn.Recv.List[0].Type
				if star, ok := receiver.(*ast.StarExpr); ok {
					receiver = star.X
				}
				ident := receiver.(*ast.Ident)
				if !ident.IsExported() {
					continue
				}
				name = ident.Name + "." + name
			}
			names = append(names, name)
		}
	}
	if len(names) < 10 {
		t.Errorf("only %v take a context", names)
	}
	return names
}

func takesContext(f *ast.FuncType) bool {
	if f.Results == nil {
		return false
	}
	last, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	if !ok || last.Name != "error" {
		return false
	}
	return slices.ContainsFunc(f.Params.List, func(p *ast.Field) bool {
		selector, ok := p.Type.(*ast.SelectorExpr)
		return ok && selector.Sel.Name == "Context"
	})
}
