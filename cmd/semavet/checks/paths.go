package checks

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// maxStates bounds the search through a function. Beyond it the analyzer
// reports nothing.
const maxStates = 5000

// paths walks the control-flow paths that start at an acquire.
//
// It goes from block to block with a state: whether the status has been
// checked, and which conditions held on the way. The state only ever excludes
// paths, so incomplete state makes the search find too much rather than too
// little. Anything that makes the state doubtful ends a path.
type paths struct {
	info     *types.Info
	fn       inspector.Cursor
	graph    *cfg.CFG
	call     inspector.Cursor      // the acquire
	status   *types.Var            // the error or bool that reports success; nil if there is none
	failed   bool                  // follow the paths on which the acquire failed, instead of those on which it succeeded
	switches map[ast.Stmt]ast.Stmt // the switch of each case
	seen     map[string]bool

	// visit processes one node. The path is not followed further if done is
	// true, and no other path if found is.
	visit func(n ast.Node, k *state) (found, done bool)
	// absent reports whether nothing is held if a condition is false; nil if no
	// condition implies that.
	absent func(condition ast.Expr) bool
}

// A state is what is known at a point of a path.
type state struct {
	confirmed bool // the acquire certainly succeeded, or failed if such paths are followed
	detached  bool // the status variable has been assigned another value
	facts     map[string]fact
	note      fmt.Stringer // what the analyzer collects on the path; nil: nothing
}

// A fact is the value of a condition. The key of a fact is the condition's
// text.
type fact struct {
	holds bool
	of    []types.Object
}

// newPaths prepares a walk from an acquire in fn.
func newPaths(info *types.Info, call, fn inspector.Cursor, graph *cfg.CFG, status *types.Var) *paths {
	p := &paths{info: info, fn: fn, graph: graph, call: call, status: status, switches: map[ast.Stmt]ast.Stmt{}, seen: map[string]bool{}}
	for s := range fn.Preorder((*ast.SwitchStmt)(nil), (*ast.TypeSwitchStmt)(nil)) {
		body, _ := s.LastChild()
		for _, clause := range body.Node().(*ast.BlockStmt).List {
			p.switches[clause] = s.Node().(ast.Stmt)
		}
	}
	return p
}

var errTooMany = errors.New("too many states")

// from walks the paths that follow a node, and reports whether visit found
// something. It fails with errTooMany.
func (p *paths) from(n ast.Node, k state) (bool, error) {
	home := blockOf(p.graph, n)
	if home == nil {
		return false, nil
	}
	return p.walk(home, slices.Index(home.Nodes, n)+1, k)
}

// walk continues from the i-th node of a block.
func (p *paths) walk(b *cfg.Block, i int, k state) (bool, error) {
	if i == 0 {
		key := fmt.Sprint(b.Index, k)
		if p.seen[key] {
			return false, nil
		}
		if p.seen[key] = true; len(p.seen) > maxStates {
			return false, errTooMany
		}
	}
	for _, n := range b.Nodes[i:] {
		if found, done := p.visit(n, &k); found || done {
			return found, nil
		}
		p.follow(n, &k)
	}
	for _, on := range p.edges(b, k) {
		if found, err := p.walk(on.to, 0, on.with); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// initialState returns the state after the acquire: its weight is not 0,
// because weight 0 holds nothing, and the conditions of the enclosing if
// statements hold.
func (p *paths) initialState() state {
	k := state{facts: map[string]fact{}}
	if weight := weightOf(p.call.Node().(*ast.CallExpr)); weight != nil {
		zero := &ast.BasicLit{Kind: token.INT, Value: "0"}
		p.addFact(&k, &ast.BinaryExpr{X: weight, Op: token.GTR, Y: zero}, true)
		p.addFact(&k, &ast.BinaryExpr{X: weight, Op: token.EQL, Y: zero}, false)
	}
	inside := p.call.Node()
	for outer := range p.call.Enclosing((*ast.IfStmt)(nil), (*ast.CaseClause)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		var assumed []state
		switch s := outer.Node().(type) {
		case *ast.IfStmt:
			if isWithin(inside.Pos(), s.Body) {
				assumed = p.assume(k, s.Cond, true)
			} else if s.Else != nil && isWithin(inside.Pos(), s.Else) {
				assumed = p.assume(k, s.Cond, false)
			}
		case *ast.CaseClause:
			if of, ok := p.switches[s].(*ast.SwitchStmt); ok && len(s.List) == 1 {
				assumed = p.assume(k, caseOf(of, s.List[0]), true)
			}
		default:
			return k
		}
		if len(assumed) == 1 { // if there are several, none is certain
			k.facts = assumed[0].facts
		}
	}
	return k
}

// follow updates the state after a node: the status may be assigned another
// value, and facts about variables that n changes are dropped.
func (p *paths) follow(n ast.Node, k *state) {
	if p.status != nil && !k.detached {
		k.detached = assigns(p.info, n, p.status)
	}
	stale := func(_ string, f fact) bool {
		return slices.ContainsFunc(f.of, func(o types.Object) bool {
			v, ok := o.(*types.Var)
			return ok && assigns(p.info, n, v)
		})
	}
	if a, ok := n.(*ast.AssignStmt); ok || isChange(n) {
		k.facts = maps.Clone(k.facts)
		maps.DeleteFunc(k.facts, stale)
		if ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
			if known := p.info.Types[a.Rhs[0]].Value; known != nil && isBool(known) {
				p.addFact(k, a.Lhs[0], isTrue(known))
			}
		}
	}
}

func isChange(n ast.Node) bool {
	switch n.(type) {
	case *ast.ValueSpec, *ast.IncDecStmt:
		return true
	}
	return false
}

// addFact records the value of a condition that depends only on the variables
// in its text.
func (p *paths) addFact(k *state, condition ast.Expr, holds bool) {
	text, of, ok := textOf(p.info, condition)
	if !ok {
		return
	}
	k.facts = maps.Clone(k.facts)
	k.facts[text] = fact{holds, of}
}

// textOf returns an expression as a key, with the objects it mentions; ok is
// false if its value may change between evaluations.
func textOf(info *types.Info, e ast.Expr) (text string, of []types.Object, ok bool) {
	ok = true
	text = types.ExprString(e)
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			ok = ok && (info.Types[n.Fun].IsBuiltin() || info.Types[n.Fun].IsType())
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		case *ast.FuncLit:
			ok = false
		case *ast.Ident:
			if o := info.ObjectOf(n); o != nil {
				of = append(of, o)
				text += fmt.Sprint(" @", o.Pos()) // another variable may have the same name
			}
		}
		return ok
	})
	return text, of, ok
}

// String returns a key that distinguishes states.
func (k state) String() string {
	var b strings.Builder
	fmt.Fprint(&b, k.confirmed, k.detached, k.note)
	for _, text := range slices.Sorted(maps.Keys(k.facts)) {
		fmt.Fprintf(&b, ";%s=%t", text, k.facts[text].holds)
	}
	return b.String()
}

// isResult reports whether a variable is a named result of the function.
func (p *paths) isResult(v *types.Var) bool {
	for r := range signatureOf(p.info, p.fn.Node()).Results().Variables() {
		if r == v {
			return true
		}
	}
	return false
}

// signatureOf returns the signature of a function declaration or literal.
func signatureOf(info *types.Info, fn ast.Node) *types.Signature {
	switch n := fn.(type) {
	case *ast.FuncDecl:
		return info.Defs[n.Name].(*types.Func).Signature()
	case *ast.FuncLit:
		return info.TypeOf(n.Type).(*types.Signature)
	}
	return types.NewSignatureType(nil, nil, nil, nil, nil, false)
}
