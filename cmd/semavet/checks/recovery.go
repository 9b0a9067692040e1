package checks

import (
	"go/ast"
	"go/types"

	"golang.org/x/tools/go/ast/inspector"
)

// recoveries are the functions of a package whose panics are recovered, with
// what recovers them.
type recoveries map[ast.Node]string

// findRecoveries finds the functions that are HTTP handlers, whose panics
// net/http recovers, those that call recover, and those of the package that
// they call.
func (v *checker) findRecoveries() recoveries {
	found := recoveries{}
	declared := map[*types.Func]ast.Node{}
	for fn := range v.root.Preorder((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		if by := v.recoversItself(fn); by != "" {
			found[fn.Node()] = by
		}
		if d, ok := fn.Node().(*ast.FuncDecl); ok {
			if of, ok := v.TypesInfo.Defs[d.Name].(*types.Func); ok {
				declared[of] = d
			}
		}
	}
	for changed := len(found) > 0; changed; {
		changed = false
		for c := range v.root.Preorder((*ast.CallExpr)(nil)) {
			callee := v.calledHere(c, declared)
			caller, _ := v.function(c)
			if callee == nil || !caller.Valid() || found[callee] != "" || found[caller.Node()] == "" {
				continue
			}
			found[callee] = byCaller(found[caller.Node()], caller.Node())
			changed = true
		}
	}
	return found
}

// of returns what recovers the panics of a function, "" if nothing is known to.
func (r recoveries) of(fn inspector.Cursor) string {
	if !fn.Valid() {
		return ""
	}
	return r[fn.Node()]
}

const itself = "the function"

// recoversItself returns what recovers the panics of a function in every call of
// it.
func (v *checker) recoversItself(fn inspector.Cursor) string {
	params := signatureOf(v.TypesInfo, fn.Node()).Params()
	if params.Len() == 2 && isNamed(params.At(0).Type(), "net/http", "ResponseWriter") && isNamed(pointedTo(params.At(1).Type()), "net/http", "Request") {
		return "net/http"
	}
	for d := range fn.Preorder((*ast.DeferStmt)(nil)) {
		literal, ok := d.Node().(*ast.DeferStmt).Call.Fun.(*ast.FuncLit)
		if in, _ := v.function(d); !ok || in != fn {
			continue
		}
		if v.callsRecover(literal) {
			return itself
		}
	}
	return ""
}

// byCaller returns what recovers the panics of a function whose caller's panics
// are recovered.
func byCaller(recovery string, caller ast.Node) string {
	if recovery != itself {
		return recovery
	}
	if d, ok := caller.(*ast.FuncDecl); ok {
		return "its caller " + d.Name.Name
	}
	return "its caller"
}

// calledHere returns the function of the package that a call calls in the same
// goroutine, nil if there is none: a panic in another one ends the process.
func (v *checker) calledHere(c inspector.Cursor, declared map[*types.Func]ast.Node) ast.Node {
	call := c.Node().(*ast.CallExpr)
	if g, ok := c.Parent().Node().(*ast.GoStmt); ok && g.Call == call {
		return nil
	}
	if literal, ok := call.Fun.(*ast.FuncLit); ok {
		return literal
	}
	if fn := calleeOf(v.TypesInfo, call); fn != nil {
		return declared[fn]
	}
	return nil
}

func (v *checker) callsRecover(literal *ast.FuncLit) bool {
	found := false
	ast.Inspect(literal.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return !found
		}
		id, ok := call.Fun.(*ast.Ident)
		_, builtin := v.TypesInfo.Uses[id].(*types.Builtin)
		found = found || ok && builtin && id.Name == "recover"
		return !found
	})
	return found
}
