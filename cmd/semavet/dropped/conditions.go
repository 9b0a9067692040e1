package dropped

import (
	"go/ast"
	"go/constant"
	"go/token"

	"golang.org/x/tools/go/cfg"
)

// A way leads to a block, with what is known on arrival.
type way struct {
	to   *cfg.Block
	with knowledge
}

// ways are those that lead on from the end of a block.
func (p *paths) ways(b *cfg.Block, k knowledge) []way {
	condition, opaque := p.condition(b)
	var list []way
	for i, to := range b.Succs {
		switch {
		case opaque:
			return nil
		case condition == nil:
			list = append(list, way{to, k})
		default:
			for _, with := range p.assume(k, condition, i == 0) {
				list = append(list, way{to, with})
			}
		}
	}
	return list
}

// condition is what decides between the two ways on from a block, nil if that
// says nothing. It is opaque if it depends on the proof in a way that is not
// understood.
func (p *paths) condition(b *cfg.Block) (condition ast.Expr, opaque bool) {
	if len(b.Succs) != 2 {
		return nil, false
	}
	var last ast.Expr
	if len(b.Nodes) > 0 {
		last, _ = b.Nodes[len(b.Nodes)-1].(ast.Expr)
	}
	switch body := b.Succs[0]; body.Kind {
	case cfg.KindIfThen, cfg.KindForBody:
		return last, false
	case cfg.KindSwitchCaseBody:
		switch s := p.switches[body.Stmt].(type) {
		case *ast.SwitchStmt:
			return caseOf(s, last), false
		case *ast.TypeSwitchStmt:
			return nil, p.hold.proof != nil && p.mentions(s.Assign, p.hold.proof)
		}
	}
	return nil, false
}

// caseOf is the condition that a case of a switch stands for.
func caseOf(s *ast.SwitchStmt, value ast.Expr) ast.Expr {
	if s.Tag == nil {
		return value
	}
	return &ast.BinaryExpr{X: s.Tag, Op: token.EQL, OpPos: value.Pos(), Y: value}
}

// assume is what is known if a condition has the value wanted: nothing at all
// if it cannot have it, or if the hold is not there then; several if there are
// several ways to have it.
func (p *paths) assume(k knowledge, condition ast.Expr, want bool) []knowledge {
	if value := p.info.Types[condition].Value; value != nil && isBool(value) {
		return when(k, isTrue(value) == want)
	}
	switch c := condition.(type) {
	case *ast.ParenExpr:
		return p.assume(k, c.X, want)
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			return p.assume(k, c.X, !want)
		}
	case *ast.BinaryExpr:
		switch c.Op {
		case token.LAND, token.LOR:
			return p.assumeBoth(k, c, want)
		case token.NEQ, token.GEQ, token.LEQ: // negations of others
			negated := map[token.Token]token.Token{token.NEQ: token.EQL, token.GEQ: token.LSS, token.LEQ: token.GTR}
			return p.assume(k, &ast.BinaryExpr{X: c.X, Op: negated[c.Op], OpPos: c.OpPos, Y: c.Y}, !want)
		}
	}
	if p.asksHeld(condition) && !want {
		return nil
	}
	if p.hold.proof != nil && !k.detached && p.mentions(condition, p.hold.proof) {
		return p.assumeProof(k, condition, want)
	}
	text, _, lasting := p.text(condition)
	if known, ok := k.facts[text]; ok && lasting {
		return when(k, known.holds == want)
	}
	p.learn(&k, condition, want)
	return []knowledge{k}
}

// assumeBoth is for && and ||, of which the second side is looked at only if
// the first has not decided.
func (p *paths) assumeBoth(k knowledge, c *ast.BinaryExpr, want bool) []knowledge {
	decides := c.Op == token.LOR // the value of the first side that is enough
	var all []knowledge
	if want == decides {
		all = p.assume(k, c.X, decides)
	}
	for _, undecided := range p.assume(k, c.X, !decides) {
		all = append(all, p.assume(undecided, c.Y, want)...)
	}
	return all
}

// assumeProof is for conditions on what tells whether the hold is there. An
// error that is something is not nil; one that is not something may be.
func (p *paths) assumeProof(k knowledge, condition ast.Expr, want bool) []knowledge {
	proven := k
	proven.proven = true
	switch c := condition.(type) {
	case *ast.Ident: // a bool
		return when(proven, want)
	case *ast.CallExpr:
		callee := calleeOf(p.info, c)
		if callee != nil && callee.Pkg() != nil && callee.Pkg().Path() == "errors" {
			return when(k, !want)
		}
	case *ast.BinaryExpr:
		other := c.Y
		if !p.isVar(c.X, p.hold.proof) {
			other = c.X
		}
		switch {
		case c.Op != token.EQL || p.mentions(other, p.hold.proof) || !p.isVar(c.X, p.hold.proof) && !p.isVar(c.Y, p.hold.proof):
		case p.info.Types[other].IsNil():
			return when(proven, want)
		case isError(p.hold.proof.Type()):
			return when(k, !want)
		}
	}
	return when(k, k.proven) // somebody's own judgement
}

// asksHeld reports whether a condition is whether the permit is held.
func (p *paths) asksHeld(condition ast.Expr) bool {
	call, ok := condition.(*ast.CallExpr)
	if !ok || p.hold.kind != permit || p.hold.name == nil {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Held" && p.isVar(s.X, p.hold.name)
}

func when(k knowledge, possible bool) []knowledge {
	if !possible {
		return nil
	}
	return []knowledge{k}
}

func isBool(v constant.Value) bool { return v.Kind() == constant.Bool }

func isTrue(v constant.Value) bool { return constant.BoolVal(v) }
