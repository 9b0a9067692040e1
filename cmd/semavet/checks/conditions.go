package checks

import (
	"go/ast"
	"go/constant"
	"go/token"

	"golang.org/x/tools/go/cfg"
)

// An edge leads to a block, with the state on arrival.
type edge struct {
	to   *cfg.Block
	with state
}

// edges returns the edges that leave a block.
func (p *paths) edges(b *cfg.Block, k state) []edge {
	condition, opaque := p.condition(b)
	var list []edge
	for i, to := range b.Succs {
		switch {
		case opaque:
			return nil
		case condition == nil:
			list = append(list, edge{to, k})
		default:
			for _, with := range p.assume(k, condition, i == 0) {
				list = append(list, edge{to, with})
			}
		}
	}
	return list
}

// condition returns the condition that selects between the two edges that leave
// a block, nil if there is no usable one. It is opaque if it depends on the
// status in a way that the analyzer does not support.
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
			return nil, p.status != nil && mentions(p.info, s.Assign, p.status)
		}
	}
	return nil, false
}

// caseOf returns the condition that is equivalent to a case of a switch.
func caseOf(s *ast.SwitchStmt, value ast.Expr) ast.Expr {
	if s.Tag == nil {
		return value
	}
	return &ast.BinaryExpr{X: s.Tag, Op: token.EQL, OpPos: value.Pos(), Y: value}
}

// assume returns the states in which a condition has the value want: none if
// that is impossible, or if there is no hold then; several if there are several
// ways to get that value.
func (p *paths) assume(k state, condition ast.Expr, want bool) []state {
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
		case token.NEQ, token.GEQ, token.LEQ: // negations of other operators
			negated := map[token.Token]token.Token{token.NEQ: token.EQL, token.GEQ: token.LSS, token.LEQ: token.GTR}
			return p.assume(k, &ast.BinaryExpr{X: c.X, Op: negated[c.Op], OpPos: c.OpPos, Y: c.Y}, !want)
		}
	}
	if p.absent != nil && p.absent(condition) && !want {
		return nil
	}
	if p.concernsStatus(condition, k) {
		return p.assumeStatus(k, condition, want)
	}
	text, _, stable := textOf(p.info, condition)
	if known, ok := k.facts[text]; ok && stable {
		return when(k, known.holds == want)
	}
	p.addFact(&k, condition, want)
	return []state{k}
}

// assumeBoth handles && and ||, whose second operand is evaluated only if the
// first one does not decide.
func (p *paths) assumeBoth(k state, c *ast.BinaryExpr, want bool) []state {
	decides := c.Op == token.LOR // the value of the first operand that decides
	var all []state
	if want == decides {
		all = p.assume(k, c.X, decides)
	}
	for _, next := range p.assume(k, c.X, !decides) {
		all = append(all, p.assume(next, c.Y, want)...)
	}
	return all
}

// concernsStatus reports whether a condition depends on the status: on its
// variable, or on the acquire itself.
func (p *paths) concernsStatus(condition ast.Expr, k state) bool {
	return isWithin(p.call.Node().Pos(), condition) ||
		p.status != nil && !k.detached && mentions(p.info, condition, p.status)
}

// isStatus reports whether an expression is the status.
func (p *paths) isStatus(e ast.Expr) bool {
	return ast.Unparen(e) == p.call.Node() || p.status != nil && isVar(p.info, e, p.status)
}

// assumeStatus handles conditions on the status. An error that matches another
// error is not nil; one that does not match may be nil.
func (p *paths) assumeStatus(k state, condition ast.Expr, want bool) []state {
	switch c := condition.(type) {
	case *ast.Ident: // a bool
		return p.assumeSuccess(k, want)
	case *ast.CallExpr:
		if p.isStatus(c) {
			return p.assumeSuccess(k, want)
		}
		callee := calleeOf(p.info, c)
		if callee != nil && callee.Pkg() != nil && callee.Pkg().Path() == "errors" {
			return p.assumeMatch(k, want)
		}
	case *ast.BinaryExpr:
		other := c.Y
		if !p.isStatus(c.X) {
			other = c.X
		}
		switch {
		case c.Op != token.EQL || p.concernsStatus(other, k) || !p.isStatus(c.X) && !p.isStatus(c.Y):
		case p.info.Types[other].IsNil():
			return p.assumeSuccess(k, want)
		case isError(p.info.TypeOf(other)):
			return p.assumeMatch(k, want)
		}
	}
	return when(k, k.confirmed) // a condition that is not understood
}

// assumeSuccess returns the state in which the acquire succeeded, or did not.
func (p *paths) assumeSuccess(k state, succeeded bool) []state {
	k.confirmed = true
	return when(k, succeeded != p.failed)
}

// assumeMatch returns the state in which the error matches another one, or does
// not.
func (p *paths) assumeMatch(k state, matches bool) []state {
	if p.failed {
		k.confirmed = k.confirmed || matches
		return []state{k}
	}
	return when(k, !matches)
}

func when(k state, possible bool) []state {
	if !possible {
		return nil
	}
	return []state{k}
}

func isBool(v constant.Value) bool { return v.Kind() == constant.Bool }

func isTrue(v constant.Value) bool { return constant.BoolVal(v) }
