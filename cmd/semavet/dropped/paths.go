package dropped

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// maxStates bounds the search through a function. Beyond it the analyzer is
// silent.
const maxStates = 5000

// paths searches the ways that lead on from a hold for one that drops it.
//
// It goes from block to block with what it knows: whether the proof has been
// looked at, and which conditions it came by. Knowledge only ever rules ways out,
// so where it is incomplete the search finds too much rather than too little;
// and what makes the knowledge doubtful ends a way without a finding.
type paths struct {
	info     *types.Info
	hold     *hold
	fn       inspector.Cursor
	graph    *cfg.CFG
	switches map[ast.Stmt]ast.Stmt // of each case
	isMain   bool                  // whose return ends everything
	inTest   bool
	seen     map[string]bool
}

// A leak is where a hold is lost.
type leak struct {
	at    ast.Node
	again bool // it is not a return: the variable gets another value
}

// knowledge is what is known at a point of a way.
type knowledge struct {
	proven   bool // the hold is there for certain
	detached bool // the variable of the proof has another value by now
	facts    map[string]fact
}

// A fact is the value of a condition, by its text.
type fact struct {
	holds bool
	of    []types.Object
}

func newPaths(pass *analysis.Pass, h *hold, fn inspector.Cursor, graph *cfg.CFG) *paths {
	p := &paths{info: pass.TypesInfo, hold: h, fn: fn, graph: graph,
		inTest: inTestFile(pass, h.statement), switches: map[ast.Stmt]ast.Stmt{}, seen: map[string]bool{}}
	if d, ok := fn.Node().(*ast.FuncDecl); ok {
		p.isMain = d.Name.Name == "main" && d.Recv == nil && pass.Pkg.Name() == "main"
	}
	for s := range fn.Preorder((*ast.SwitchStmt)(nil), (*ast.TypeSwitchStmt)(nil)) {
		body, _ := s.LastChild()
		for _, clause := range body.Node().(*ast.BlockStmt).List {
			p.switches[clause] = s.Node().(ast.Stmt)
		}
	}
	return p
}

// findLeak is where the hold is lost, nil if it is not, or not for certain.
func (p *paths) findLeak() *leak {
	home := blockOf(p.graph, p.hold.statement)
	if home == nil || p.caredForInALoop(home) {
		return nil
	}
	found, err := p.walk(home, slices.Index(home.Nodes, p.hold.statement)+1, p.atStart())
	if err != nil {
		return nil
	}
	return found
}

// caredForInALoop reports whether the hold is given back in some round of a loop
// that goes on. Which round that is, and whether there is one, is not followed.
func (p *paths) caredForInALoop(home *cfg.Block) bool {
	for _, b := range p.graph.Blocks {
		for _, n := range b.Nodes {
			if p.caredFor(n) && comesRound(p.graph, n, home) {
				return true
			}
		}
	}
	return false
}

// atStart is what is known when the hold has its name: that its weight is not 0,
// for which there is nothing to hold, and the conditions of the if statements
// around it.
func (p *paths) atStart() knowledge {
	k := knowledge{proven: p.hold.proof == nil, facts: map[string]fact{}}
	if weight := weightOf(p.hold.call.Node().(*ast.CallExpr)); weight != nil {
		zero := &ast.BasicLit{Kind: token.INT, Value: "0"}
		p.learn(&k, &ast.BinaryExpr{X: weight, Op: token.GTR, Y: zero}, true)
		p.learn(&k, &ast.BinaryExpr{X: weight, Op: token.EQL, Y: zero}, false)
	}
	inside := p.hold.call.Node()
	for outer := range p.hold.call.Enclosing((*ast.IfStmt)(nil), (*ast.CaseClause)(nil), (*ast.FuncLit)(nil), (*ast.FuncDecl)(nil)) {
		var assumed []knowledge
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
		if len(assumed) == 1 { // of several, none is certain
			k.facts = assumed[0].facts
		}
	}
	return k
}

var errTooMany = fmt.Errorf("more than %d states", maxStates)

// walk goes on from the i-th node of a block.
func (p *paths) walk(b *cfg.Block, i int, k knowledge) (*leak, error) {
	if i == 0 {
		key := fmt.Sprint(b.Index, k)
		if p.seen[key] {
			return nil, nil
		}
		if p.seen[key] = true; len(p.seen) > maxStates {
			return nil, errTooMany
		}
	}
	for _, n := range b.Nodes[i:] {
		found, over := p.step(n, &k)
		if over {
			return found, nil
		}
	}
	for _, on := range p.ways(b, k) {
		if found, err := p.walk(on.to, 0, on.with); found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil
}

// step takes one node into account. The way is over if the hold is lost there,
// or is no longer to be followed.
func (p *paths) step(n ast.Node, k *knowledge) (lost *leak, over bool) {
	h := p.hold
	if p.caredFor(n) || p.failsTest(n) {
		return nil, true
	}
	if n == h.statement || h.name != nil && p.assigns(n, h.name) {
		return p.lost(n, k, true), true
	}
	if r, ok := n.(*ast.ReturnStmt); ok {
		return p.lost(r, k, false), true
	}
	if h.proof != nil && !k.detached {
		if p.obscures(n) && !k.proven {
			return nil, true
		}
		k.detached = p.assigns(n, h.proof)
	}
	p.forget(n, k)
	return nil, false
}

// lost is a leak, if it matters here.
func (p *paths) lost(n ast.Node, k *knowledge, again bool) *leak {
	if p.isMain && !again {
		return nil
	}
	// In a test a permit without a name is one that is expected to be refused.
	if p.inTest && p.hold.name == nil && !k.proven {
		return nil
	}
	return &leak{n, again}
}

// forget drops the facts about variables that n changes, and learns what it
// makes of a flag.
func (p *paths) forget(n ast.Node, k *knowledge) {
	stale := func(_ string, f fact) bool {
		return slices.ContainsFunc(f.of, func(o types.Object) bool {
			v, ok := o.(*types.Var)
			return ok && p.assigns(n, v)
		})
	}
	if a, ok := n.(*ast.AssignStmt); ok || isChange(n) {
		k.facts = maps.Clone(k.facts)
		maps.DeleteFunc(k.facts, stale)
		if ok && len(a.Lhs) == 1 && len(a.Rhs) == 1 {
			if known := p.info.Types[a.Rhs[0]].Value; known != nil && isBool(known) {
				p.learn(k, a.Lhs[0], isTrue(known))
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

// learn notes the value of a condition whose text says all there is to it.
func (p *paths) learn(k *knowledge, condition ast.Expr, holds bool) {
	text, of, ok := p.text(condition)
	if !ok {
		return
	}
	k.facts = maps.Clone(k.facts)
	k.facts[text] = fact{holds, of}
}

// text is an expression as a key, with the variables it is made of; ok is false
// if it may have another value the next time.
func (p *paths) text(e ast.Expr) (text string, of []types.Object, ok bool) {
	ok = true
	text = types.ExprString(e)
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			ok = ok && p.info.Types[n.Fun].IsBuiltin() || p.info.Types[n.Fun].IsType()
		case *ast.UnaryExpr:
			ok = ok && n.Op != token.ARROW
		case *ast.FuncLit:
			ok = false
		case *ast.Ident:
			if o := p.info.ObjectOf(n); o != nil {
				of = append(of, o)
				text += fmt.Sprint(" @", o.Pos()) // another variable may have the same name
			}
		}
		return ok
	})
	return text, of, ok
}

// String tells states apart.
func (k knowledge) String() string {
	var b strings.Builder
	fmt.Fprint(&b, k.proven, k.detached)
	for _, text := range slices.Sorted(maps.Keys(k.facts)) {
		fmt.Fprintf(&b, ";%s=%t", text, k.facts[text].holds)
	}
	return b.String()
}

func (p *paths) isResult(v *types.Var) bool {
	var signature *types.Signature
	switch n := p.fn.Node().(type) {
	case *ast.FuncDecl:
		signature = p.info.Defs[n.Name].(*types.Func).Signature()
	case *ast.FuncLit:
		signature = p.info.TypeOf(n.Type).(*types.Signature)
	}
	for r := range signature.Results().Variables() {
		if r == v {
			return true
		}
	}
	return false
}
