package checks

import (
	"go/ast"
	"go/types"
	"slices"
)

// The packages whose types the analyzers know.
const (
	semaPath  = "github.com/sema-go/sema"
	fleetPath = semaPath + "/fleet"
	groupPath = semaPath + "/group"
	poolPath  = semaPath + "/pool"
	admitPath = semaPath + "/admit"
	ratePath  = semaPath + "/rate"
	syncPath  = "golang.org/x/sync/semaphore"
)

// isNamed reports whether t is the named type, or an instance of it.
func isNamed(t types.Type, path, name string) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == name && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == path
}

func isError(t types.Type) bool { return types.Identical(t, types.Universe.Lookup("error").Type()) }

func isBoolean(t types.Type) bool { return types.Identical(t, types.Typ[types.Bool]) }

// isMethodOf reports whether fn is a method of one of the named types of a
// package.
func isMethodOf(fn *types.Func, path string, names ...string) bool {
	receiver := fn.Signature().Recv()
	if receiver == nil {
		return false
	}
	t := pointedTo(receiver.Type())
	return slices.ContainsFunc(names, func(name string) bool { return isNamed(t, path, name) })
}

// isWeighted reports whether fn is a method of a Weighted: Sema's, or the one of
// golang.org/x/sync that it replaces.
func isWeighted(fn *types.Func) bool {
	return isMethodOf(fn, semaPath, "Weighted") || isMethodOf(fn, syncPath, "Weighted")
}

// isFunction reports whether fn is a function of a package.
func isFunction(fn *types.Func, path, name string) bool {
	return fn.Name() == name && fn.Pkg() != nil && fn.Pkg().Path() == path && fn.Signature().Recv() == nil
}

// pointedTo returns the type that t points to, or t if it is no pointer.
func pointedTo(t types.Type) types.Type {
	t = types.Unalias(t)
	if p, ok := t.(*types.Pointer); ok {
		return types.Unalias(p.Elem())
	}
	return t
}

// isContext reports whether t is context.Context.
func isContext(t types.Type) bool { return isNamed(t, "context", "Context") }

// isEmptyContext reports whether e is context.Background() or context.TODO().
func isEmptyContext(info *types.Info, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	fn := calleeOf(info, call)
	return fn != nil && (isFunction(fn, "context", "Background") || isFunction(fn, "context", "TODO"))
}
