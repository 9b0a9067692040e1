package checks

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"

	"golang.org/x/tools/go/ast/inspector"
)

// A semaphore is a Weighted in the text of a function: a variable, or a field of
// one.
type semaphore struct {
	key string         // equal for expressions that denote the same semaphore
	of  []types.Object // what the expression mentions
	id  *types.Var     // the variable or the field, for the whole package
}

// A weightedCall is a call of a method of a Weighted.
type weightedCall struct {
	call      *ast.CallExpr
	cursor    inspector.Cursor
	fn        inspector.Cursor // the function around it; of a deferred literal, the function that defers it
	outermost inspector.Cursor // the function declaration around it, with all its literals
	method    string
	semaphore semaphore
	weight    ast.Expr
	statement ast.Node   // of an acquire: the statement or condition that gets the status; nil if it is something else
	status    *types.Var // of an acquire: nil if it is ignored, or is itself the condition
	ignored   bool       // of an acquire: its status is discarded
}

// A census is what a package does with its Weighted.
type census struct {
	acquires, releases []*weightedCall
	shared             map[*types.Var]bool // used other than by calls of its methods
	aliases            map[*types.Var]bool // may denote any semaphore: parameters, range variables, copies
}

// weightedCalls returns the census of the package.
func (v *checker) weightedCalls() *census {
	s := &census{shared: map[*types.Var]bool{}, aliases: map[*types.Var]bool{}}
	for c := range v.root.Preorder((*ast.CallExpr)(nil)) {
		w := v.weightedCall(c.Node().(*ast.CallExpr))
		if w == nil {
			continue
		}
		w.cursor = c
		w.fn, w.outermost = v.deferrer(c), outermost(c)
		if w.method == "Release" {
			s.releases = append(s.releases, w)
		} else {
			v.findStatus(w)
			s.acquires = append(s.acquires, w)
		}
	}
	if len(s.acquires)+len(s.releases) > 0 {
		v.findShared(s)
	}
	return s
}

// deferrer returns the function around a node. A literal that is deferred is
// part of the function that defers it.
func (v *checker) deferrer(c inspector.Cursor) inspector.Cursor {
	fn, _ := v.function(c)
	for fn.Valid() && isDeferred(fn) {
		fn, _ = v.function(fn.Parent())
	}
	return fn
}

// outermost returns the function around a node that is in no other function.
func outermost(c inspector.Cursor) (fn inspector.Cursor) {
	for outer := range c.Enclosing((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		fn = outer
	}
	return fn
}

func isDeferred(literal inspector.Cursor) bool {
	call, ok := literal.Parent().Node().(*ast.CallExpr)
	if !ok || call.Fun != literal.Node() {
		return false
	}
	_, ok = literal.Parent().Parent().Node().(*ast.DeferStmt)
	return ok
}

// weightedCall returns a call as one of Acquire, TryAcquire or Release of a
// Weighted; nil if it is not, or if the semaphore is unknown.
func (v *checker) weightedCall(call *ast.CallExpr) *weightedCall {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	fn := calleeOf(v.TypesInfo, call)
	if fn == nil || !isWeighted(fn) || !slices.Contains([]string{"Acquire", "TryAcquire", "Release"}, fn.Name()) {
		return nil
	}
	of, ok := v.semaphoreOf(s.X)
	if !ok || len(v.TypesInfo.Selections[s].Index()) > 1 { // promoted: s.X is not the semaphore
		return nil
	}
	return &weightedCall{call: call, method: fn.Name(), semaphore: of, weight: call.Args[len(call.Args)-1]}
}

// semaphoreOf returns the semaphore that an expression denotes; ok is false for
// one of many, as in a slice.
func (v *checker) semaphoreOf(e ast.Expr) (s semaphore, ok bool) {
	e = ast.Unparen(e)
	for x := e; ; {
		switch n := x.(type) {
		case *ast.SelectorExpr:
			if s.id == nil {
				s.id, _ = v.TypesInfo.Uses[n.Sel].(*types.Var)
			}
			x = ast.Unparen(n.X)
			continue
		case *ast.Ident:
			if s.id == nil {
				s.id, _ = v.TypesInfo.Uses[n].(*types.Var)
			}
		default:
			return s, false
		}
		break
	}
	if s.id == nil {
		return s, false
	}
	s.id = s.id.Origin()
	s.key, s.of, ok = textOf(v.TypesInfo, e)
	return s, ok
}

// findStatus determines how the status of an acquire is used.
func (v *checker) findStatus(w *weightedCall) {
	outer := w.cursor
	for isParen(outer.Parent().Node()) {
		outer = outer.Parent()
	}
	switch n := outer.Parent().Node().(type) {
	case *ast.ExprStmt:
		w.statement, w.ignored = n, true
	case *ast.AssignStmt:
		if left := leftOf(n.Lhs, n.Rhs, outer.Node()); left != nil {
			if w.ignored = isBlank(left[0]); !w.ignored {
				w.status = v.variable(left[0])
			}
			if w.ignored || w.status != nil && (isError(w.status.Type()) || w.status.Name() == "ok") && isWithin(w.status.Pos(), w.fn.Node()) {
				w.statement = n
			}
		}
	default:
		for c := range outer.Enclosing((*ast.IfStmt)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
			if s, ok := c.Node().(*ast.IfStmt); ok && isWithin(w.call.Pos(), s.Cond) {
				w.statement = s.Cond
			}
			break
		}
	}
}

// findShared finds the semaphores that are used other than by calls of their
// methods: passed on, copied, compared; and the variables that may denote any
// semaphore, because they get an existing one.
func (v *checker) findShared(s *census) {
	ids := map[*types.Var]bool{}
	for _, w := range slices.Concat(s.acquires, s.releases) {
		ids[w.semaphore.id] = true
		if isParameter(w.semaphore.id) {
			s.aliases[w.semaphore.id] = true
		}
	}
	for c := range v.root.Preorder((*ast.Ident)(nil)) {
		id := c.Node().(*ast.Ident)
		switch of, isDefined := v.TypesInfo.ObjectOf(id).(*types.Var); {
		case !isDefined || !ids[of.Origin()]:
		case v.TypesInfo.Defs[id] != nil:
			if !v.isNewVariable(c) {
				s.aliases[of] = true
			}
		case !v.isCallOrInit(c):
			s.shared[of.Origin()] = true
		}
	}
	for c := range v.root.Preorder((*ast.CompositeLit)(nil)) {
		v.findUnkeyed(s, c.Node().(*ast.CompositeLit))
	}
	for c := range v.root.Preorder((*ast.SelectorExpr)(nil)) {
		if field := v.promotedFrom(c.Node().(*ast.SelectorExpr)); field != nil {
			s.shared[field] = true
		}
	}
}

// promotedFrom returns the embedded field whose method an expression selects,
// nil if there is none. The calls of promoted methods are not counted.
func (v *checker) promotedFrom(e *ast.SelectorExpr) *types.Var {
	selection := v.TypesInfo.Selections[e]
	if selection == nil || selection.Kind() == types.FieldVal || len(selection.Index()) < 2 {
		return nil
	}
	var field *types.Var
	t := selection.Recv()
	for _, i := range selection.Index()[:len(selection.Index())-1] {
		of, ok := pointedTo(t).Underlying().(*types.Struct)
		if !ok {
			return nil
		}
		field = of.Field(i)
		t = field.Type()
	}
	return field.Origin()
}

// isNewVariable reports whether the declaration of a variable or a field gives
// it a new Weighted, or no value yet.
func (v *checker) isNewVariable(c inspector.Cursor) bool {
	switch n := c.Parent().Node().(type) {
	case *ast.Field:
		return true
	case *ast.AssignStmt, *ast.ValueSpec:
		if s, ok := n.(*ast.ValueSpec); ok && s.Values == nil {
			return true
		}
		return v.isCallOrInit(c)
	}
	return false
}

// findUnkeyed finds the fields that get existing semaphores in a composite
// literal without keys.
func (v *checker) findUnkeyed(s *census, literal *ast.CompositeLit) {
	of, ok := types.Unalias(v.TypesInfo.TypeOf(literal)).Underlying().(*types.Struct)
	if !ok {
		return
	}
	for i, e := range literal.Elts {
		if _, keyed := e.(*ast.KeyValueExpr); keyed {
			return
		}
		if !v.isNew(e) {
			s.shared[of.Field(i).Origin()] = true
		}
	}
}

// isCallOrInit reports whether a mention of a semaphore is the receiver of a
// call, or gets a new Weighted.
func (v *checker) isCallOrInit(c inspector.Cursor) bool {
	if s, ok := c.Parent().Node().(*ast.SelectorExpr); ok && s.Sel == c.Node() {
		c = c.Parent() // the field of something
	}
	switch n := c.Parent().Node().(type) {
	case *ast.SelectorExpr:
		call, ok := c.Parent().Parent().Node().(*ast.CallExpr)
		return ok && call.Fun == n
	case *ast.KeyValueExpr:
		return n.Key == c.Node() && v.isNew(n.Value)
	case *ast.AssignStmt:
		i := slices.Index(n.Lhs, c.Node().(ast.Expr))
		return i >= 0 && len(n.Lhs) == len(n.Rhs) && v.isNew(n.Rhs[i])
	case *ast.ValueSpec:
		i := slices.Index(n.Names, c.Node().(*ast.Ident))
		return i >= 0 && len(n.Names) == len(n.Values) && v.isNew(n.Values[i])
	}
	return false
}

// isNew reports whether an expression is a call of NewWeighted.
func (v *checker) isNew(e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	fn := calleeOf(v.TypesInfo, call)
	return fn != nil && (isFunction(fn, semaPath, "NewWeighted") || isFunction(fn, syncPath, "NewWeighted"))
}

// isClosed reports whether the package contains all uses of a semaphore: it is
// declared here, unexported, and nothing else refers to it.
func (v *checker) isClosed(s *census, id *types.Var) bool {
	isLocal := id.Parent() != v.Pkg.Scope() && !id.IsField()
	return id.Pkg() == v.Pkg && !s.shared[id] && !s.aliases[id] && (isLocal || !id.Exported())
}

// isComplete reports whether the files that are checked contain all uses of a
// semaphore: it is closed, and no file is left out for another platform.
func (v *checker) isComplete(s *census, id *types.Var) bool {
	isLocal := id.Parent() != v.Pkg.Scope() && !id.IsField()
	return v.isClosed(s, id) && (isLocal || len(v.IgnoredFiles) == 0)
}

// isParameter reports whether a variable is a parameter, a receiver or a result.
func isParameter(v *types.Var) bool {
	return v.Kind() == types.ParamVar || v.Kind() == types.RecvVar || v.Kind() == types.ResultVar
}

// has reports whether one of the calls may be one of a semaphore.
func (s *census) has(calls []*weightedCall, id *types.Var) bool {
	return slices.ContainsFunc(calls, func(c *weightedCall) bool { return c.semaphore.id == id || s.aliases[c.semaphore.id] })
}

// isPassed reports whether permits of the semaphore of an acquire may be passed
// between functions, so that the numbers in one function mean nothing: some
// function calls one method of the semaphore and not the other. A function that
// does so only in a literal within it, such as a goroutine, counts for itself
// alone. For an alias any semaphore of the package counts.
func (v *checker) isPassed(s *census, acquire *weightedCall, alone, beside []*weightedCall) bool {
	id := acquire.semaphore.id
	if !v.isClosed(s, id) && (!s.aliases[id] || s.shared[id]) {
		return true
	}
	return slices.ContainsFunc(alone, func(a *weightedCall) bool {
		if !s.aliases[id] && a.semaphore.id != id && !s.aliases[a.semaphore.id] {
			return false
		}
		return !slices.ContainsFunc(beside, func(b *weightedCall) bool {
			return b.semaphore.id == a.semaphore.id && (b.fn == a.fn || b.outermost == a.outermost && a.outermost != acquire.outermost)
		})
	})
}

// mentionsSemaphore reports whether n mentions a semaphore, or assigns to
// something that its expression mentions.
func (v *checker) mentionsSemaphore(n ast.Node, s semaphore) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			of, isVar := v.TypesInfo.Uses[id].(*types.Var)
			found = found || isVar && of.Origin() == s.id
		}
		return !found
	})
	return found || slices.ContainsFunc(s.of, func(o types.Object) bool {
		of, ok := o.(*types.Var)
		return ok && !of.IsField() && assigns(v.TypesInfo, n, of)
	})
}

// amountOf returns a weight in units: of 1 if it is a constant, and otherwise of
// itself.
func (v *checker) amountOf(weight ast.Expr) (unit string, amount int64, ok bool) {
	if known := v.TypesInfo.Types[weight].Value; known != nil {
		amount, ok = constant.Int64Val(constant.ToInt(known))
		return "", amount, ok && amount > 0
	}
	text, of, ok := textOf(v.TypesInfo, weight)
	for _, o := range of {
		if variable, isVar := o.(*types.Var); isVar && variable.IsField() {
			return "", 0, false // it may change behind the function's back
		}
	}
	return text, 1, ok
}

// isLiteralOf reports whether a deferred literal releases a semaphore and does
// nothing else with it: once, whatever else happens.
func (v *checker) isLiteralOf(d *ast.DeferStmt, s semaphore) (release *weightedCall) {
	literal, ok := d.Call.Fun.(*ast.FuncLit)
	if !ok {
		return nil
	}
	for _, n := range literal.Body.List {
		if !v.mentionsSemaphore(n, s) {
			continue
		}
		e, ok := n.(*ast.ExprStmt)
		if !ok || release != nil {
			return nil
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok {
			return nil
		}
		if release = v.weightedCall(call); release == nil || release.method != "Release" {
			return nil
		}
	}
	return release
}
