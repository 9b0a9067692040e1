package checks

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
)

// Ignored finds acquires whose error, or bool, is ignored. If the acquire
// failed, what follows runs without a permit: beyond the limit, after the
// context has ended, or before the signal that it waits for. Ignored reports
//
//   - an error that is discarded: p, _ := s.Acquire(ctx, 1), w.Acquire(ctx, 1) of
//     a [sema.Weighted] or c.Wait(ctx, 1) of a [sema.Counter] as a statement;
//   - an error that is assigned and read on no path;
//   - a permit or an item that is used before the error is checked;
//   - the bool of a TryAcquire that is ignored;
//   - the error of [sema.Do] and its relatives, if the call is a statement.
//
// Permit.Held and Item.Held also show whether the acquire succeeded. An Acquire
// of a Weighted cannot fail if its context never ends. Statements that discard
// the permit as well are reported by [Dropped] alone.
//
// [sema.Weighted]: https://pkg.go.dev/github.com/sema-go/sema#Weighted
// [sema.Counter]: https://pkg.go.dev/github.com/sema-go/sema#Counter
// [sema.Do]: https://pkg.go.dev/github.com/sema-go/sema#Do
var Ignored = &analysis.Analyzer{
	Name: "ignored",
	Doc: `find acquires whose error or result is ignored

It reports errors of acquires, of Counter.Wait and of Do that are discarded or
never read, a permit that is used before the error is checked, and ignored
results of TryAcquire. It applies to golang.org/x/sync/semaphore as well.` + howToIgnore,
	URL:      homePage,
	Run:      runIgnored,
	Requires: requirements,
}

func runIgnored(pass *analysis.Pass) (any, error) {
	v := newChecker(pass)
	for c, call := range v.calls {
		if s := v.statusOf(call); s != nil {
			v.checkIgnored(c, s)
		}
	}
	return nil, nil
}

// A status is the result of an acquire that reports success.
type status struct {
	call    *ast.CallExpr
	index   int    // among the results
	kind    *kind  // of what is granted; nil: a Weighted or a Counter, for example
	granted []int  // the results that are granted
	noun    string // "error" or "result"
	consent bool   // _ = shows that it is ignored on purpose
	dropped bool   // Dropped reports the call if nothing is assigned
}

// statusOf returns the status of a call; nil if the call is no acquire, or
// cannot fail.
func (v *checker) statusOf(call *ast.CallExpr) *status {
	if k, granted, index := v.granted(call); k != nil {
		dropped, _, _ := v.results(call)
		return &status{call: call, index: index, kind: k, granted: granted, noun: "error", dropped: dropped != nil || v.hasNoWeight(call)}
	}
	fn := calleeOf(v.TypesInfo, call)
	if fn == nil {
		return nil
	}
	unlessNil := &status{call: call, noun: "error"}
	switch name := fn.Name(); {
	case isWeighted(fn) || isMethodOf(fn, semaPath, "Spin"):
		switch {
		case v.hasNoWeight(call): // a negative weight panics
		case name == "TryAcquire":
			return &status{call: call, noun: "result"}
		case name == "Acquire" && !v.neverEnds(call.Args[0]):
			return unlessNil
		}
	case isMethodOf(fn, semaPath, "Counter"):
		switch name {
		case "Wait":
			return unlessNil
		case "WaitUpTo":
			return &status{call: call, noun: "error", index: 1}
		}
	case isFunction(fn, semaPath, "Do"), name == "Do" && isMethodOf(fn, poolPath, "Pool"), name == "GoWithin" && isMethodOf(fn, groupPath, "Group"):
		return &status{call: call, noun: "error", consent: true}
	}
	return nil
}

// neverEnds reports whether a context is context.Background() or context.TODO(),
// or a local variable that is only ever that.
func (v *checker) neverEnds(ctx ast.Expr) bool {
	of := v.variable(ast.Unparen(ctx))
	if of == nil {
		return isEmptyContext(v.TypesInfo, ctx)
	}
	if of.Parent() == nil || of.Parent() == v.Pkg.Scope() {
		return false
	}
	defined := false
	for c := range v.root.Preorder((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil), (*ast.UnaryExpr)(nil)) {
		if !assigns(v.TypesInfo, c.Node(), of) {
			continue
		}
		a, ok := c.Node().(*ast.AssignStmt)
		if !ok || len(a.Lhs) != 1 || v.variable(a.Lhs[0]) != of {
			if !isOuter(c.Node(), of, v.TypesInfo) {
				return false
			}
			continue
		}
		if defined || !isEmptyContext(v.TypesInfo, a.Rhs[0]) {
			return false
		}
		defined = true
	}
	return defined
}

// isOuter reports whether a statement assigns to the variable only inside a
// function literal on its right side, where that assignment is found by itself.
func isOuter(n ast.Node, of *types.Var, info *types.Info) bool {
	a, ok := n.(*ast.AssignStmt)
	return ok && !slices.ContainsFunc(a.Lhs, func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && info.ObjectOf(id) == of
	})
}

// checkIgnored reports a status that is ignored.
func (v *checker) checkIgnored(c inspector.Cursor, s *status) {
	outer := c
	for isParen(outer.Parent().Node()) {
		outer = outer.Parent()
	}
	statement := outer.Parent()
	if isStatement(statement.Node()) {
		if !s.dropped {
			v.reportIgnored(s, statement)
		}
		return
	}
	var left []ast.Expr
	switch n := statement.Node().(type) {
	case *ast.AssignStmt:
		left = leftOf(n.Lhs, n.Rhs, outer.Node())
	case *ast.ValueSpec:
		left = leftOf(exprs(n.Names), n.Values, outer.Node())
	}
	fn, graph := v.function(c)
	if left == nil || graph == nil || v.isProven(s, left, fn) {
		return
	}
	if isBlank(left[s.index]) {
		if !s.consent && v.proceeds(s, left) {
			v.reportIgnored(s, statement)
		}
		return
	}
	variable := v.variable(left[s.index])
	if variable == nil || !v.isOwn(variable, fn) {
		return
	}
	p := newPaths(v.TypesInfo, c, fn, graph, variable)
	if isRead, err := p.isRead(statement.Node()); err == nil && !isRead {
		v.report(analysis.Diagnostic{Pos: left[s.index].Pos(), End: left[s.index].End(),
			Message: variable.Name() + " of " + s.source() + " is never checked: " + s.consequence()})
		return
	}
	for _, i := range s.granted {
		if name := v.variable(left[i]); name != nil && indicatesSuccess(variable) {
			v.checkEarlyUse(s.kind, newPaths(v.TypesInfo, c, fn, graph, variable), statement.Node(), name)
		}
	}
}

// isProven reports whether the function finds out in another way whether the
// acquire succeeded: by Held or the weight of a permit, or because the permit is
// transferred and its receiver may do so.
func (v *checker) isProven(s *status, left []ast.Expr, fn inspector.Cursor) bool {
	for _, i := range s.granted {
		name := v.variable(left[i])
		if name == nil {
			if !isBlank(left[i]) {
				return true
			}
			continue
		}
		for use := range fn.Preorder((*ast.Ident)(nil)) {
			if v.TypesInfo.Uses[use.Node().(*ast.Ident)] != name {
				continue
			}
			switch n := use.Parent().Node().(type) {
			case *ast.SelectorExpr:
				if slices.Contains(s.kind.proof, n.Sel.Name) {
					return true
				}
			case *ast.AssignStmt:
				if !slices.Contains(n.Lhs, ast.Expr(use.Node().(*ast.Ident))) {
					return true
				}
			default:
				if !isErrorToo(use, left[s.index], v) {
					return true
				}
			}
		}
	}
	return false
}

// isErrorToo reports whether a mention of a permit is in a statement that
// mentions the status as well: return p, err.
func isErrorToo(use inspector.Cursor, status ast.Expr, v *checker) bool {
	variable := v.variable(status)
	r, ok := use.Parent().Node().(*ast.ReturnStmt)
	return ok && variable != nil && mentions(v.TypesInfo, r, variable)
}

// proceeds reports whether nothing but the status shows that the call failed:
// the number of WaitUpTo does, if it has a name; so does a permit without a name,
// which Dropped reports.
func (v *checker) proceeds(s *status, left []ast.Expr) bool {
	unnamed := true
	for i, e := range left {
		unnamed = unnamed && (i == s.index || isBlank(e))
	}
	if s.granted == nil {
		return unnamed
	}
	return !unnamed || !s.dropped
}

// isRead reports whether the status is read on some path from the acquire.
func (p *paths) isRead(statement ast.Node) (bool, error) {
	p.visit = func(n ast.Node, _ *state) (found, done bool) {
		if r, ok := n.(*ast.ReturnStmt); ok && r.Results == nil && p.isResult(p.status) {
			return true, true
		}
		return reads(p.info, n, p.status), n == statement || assigns(p.info, n, p.status)
	}
	return p.from(statement, state{facts: map[string]fact{}, confirmed: true, detached: true})
}

// reads reports whether n mentions a variable other than to assign to it.
func reads(info *types.Info, n ast.Node, v *types.Var) bool {
	found := false
	ast.PreorderStack(n, nil, func(n ast.Node, stack []ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && info.Uses[id] == v {
			a, isAssign := ancestor(stack, 1).(*ast.AssignStmt)
			found = found || !isAssign || !slices.Contains(a.Lhs, ast.Expr(id))
		}
		return !found
	})
	return found
}

// checkEarlyUse reports a use of a permit or an item before the status has been
// read.
func (v *checker) checkEarlyUse(k *kind, p *paths, statement ast.Node, name *types.Var) {
	var use *ast.SelectorExpr
	p.visit = func(n ast.Node, _ *state) (found, done bool) {
		_, returns := n.(*ast.ReturnStmt)
		_, deferred := n.(*ast.DeferStmt)
		if returns || deferred || n == statement || mentions(p.info, n, p.status) || assigns(p.info, n, p.status) || assigns(p.info, n, name) {
			return false, !deferred
		}
		use = v.useOf(k, n, name)
		return use != nil, false
	}
	if found, err := p.from(statement, state{facts: map[string]fact{}, confirmed: true, detached: true}); found && err == nil {
		v.report(analysis.Diagnostic{Pos: use.Pos(), End: use.End(),
			Message: types.ExprString(use) + " is used before " + p.status.Name() + " is checked: if the acquire failed, there is nothing to use"})
	}
}

// useOf returns the first use in n of what a permit or an item stands for.
func (v *checker) useOf(k *kind, n ast.Node, name *types.Var) (use *ast.SelectorExpr) {
	ast.Inspect(n, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if ok && use == nil && isVar(v.TypesInfo, s.X, name) && slices.Contains(k.uses, s.Sel.Name) {
			use = s
		}
		return use == nil
	})
	return use
}

func (s *status) source() string { return types.ExprString(s.call.Fun) }

// consequence explains what happens if the status is ignored.
func (s *status) consequence() string {
	name := s.source()[strings.LastIndex(s.source(), ".")+1:]
	switch {
	case s.noun == "result":
		return "if it is false, nothing was acquired, and a Release would release what others hold; use it as a condition"
	case s.consent:
		return "if there is no permit, the function is not called; handle the error"
	case strings.HasPrefix(name, "Wait"):
		return "if it is not nil, the wait ended without a signal; return before the work"
	}
	return "if it is not nil, nothing was acquired; return before the work"
}

// reportIgnored reports a discarded status. It suggests a check if the function
// can return the error.
func (v *checker) reportIgnored(s *status, statement inspector.Cursor) {
	d := analysis.Diagnostic{Pos: s.call.Pos(), End: s.call.End(),
		Message: "the " + s.noun + " of " + s.source() + " is ignored: " + s.consequence()}
	if _, ok := statement.Node().(*ast.ExprStmt); ok && s.noun == "error" && s.granted == nil && s.index == 0 && isInList(statement) {
		d.SuggestedFixes = v.returnError(s.call)
	}
	v.report(d)
}

// returnError suggests returning the error of a statement from a function whose
// only result is an error.
func (v *checker) returnError(call *ast.CallExpr) []analysis.SuggestedFix {
	c, ok := v.root.FindNode(call)
	if !ok {
		return nil
	}
	fn, _ := v.function(c)
	results := signatureOf(v.TypesInfo, fn.Node()).Results()
	if results.Len() != 1 || !isError(results.At(0).Type()) {
		return nil
	}
	indent := strings.Repeat("\t", v.Fset.Position(call.Pos()).Column-1)
	return []analysis.SuggestedFix{{Message: "Return the error", TextEdits: []analysis.TextEdit{
		{Pos: call.Pos(), End: call.Pos(), NewText: []byte("if err := ")},
		{Pos: call.End(), End: call.End(), NewText: []byte("; err != nil {\n" + indent + "\treturn err\n" + indent + "}")},
	}}}
}
