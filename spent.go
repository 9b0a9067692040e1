package sema

// A Spender issues permits that are spent when they are granted, for gates whose permits
// return by time, such as package rate. Such a permit is not held: Release does nothing,
// it may be dropped, and it appears in no report of held permits. A Spender allocates
// nothing. Embed it by value and call Init once.
type Spender struct {
	issuer Issuer
	handle handle // its generation stays 0, which no permit has
}

// Init prepares the spender. It must be called once, before Permit.
func (s *Spender) Init() {
	s.issuer.Init(spentOwner{}, nil)
	s.handle.init(&s.issuer)
}

// Permit returns a spent permit of weight n. The id, which must not be 0, identifies the
// permit to the gate.
func (s *Spender) Permit(n int64, id uint64) Permit { return Permit{&s.handle, id, n} }

// ID returns the id with which the spender issued a permit. It returns 0 for permits of
// other gates and for inert ones.
func (s *Spender) ID(p Permit) uint64 {
	if p.handle != &s.handle {
		return 0
	}
	return p.gen
}

// A spentOwner is the owner of spent permits, none of which is ever released.
type spentOwner struct{}

// TakeBack implements [Owner].
func (spentOwner) TakeBack(int64) {}

// Spent issues the permit that the gate has granted, like [Wait.Granted], and reports it.
// Its release is not reported.
func (w *Wait) Spent(s *Spender, id uint64) Permit {
	w.lowered(w.weight)
	return s.Permit(w.weight, id)
}
