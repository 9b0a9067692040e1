package protocol

// MaxPage is how many semaphores a page of a list has at most, and by default.
const MaxPage = 1000

// A ListQuery selects a page of the semaphores of a store.
type ListQuery struct {
	Prefix string // of names; "": all
	After  string // names that follow this one in the order of bytes; "": from the first
	Limit  int    // at most so many; 0, and more than MaxPage: MaxPage
}

// Most returns how many semaphores the page has at most.
func (q ListQuery) Most() int {
	if q.Limit <= 0 || q.Limit > MaxPage {
		return MaxPage
	}
	return q.Limit
}

// A Summary is a semaphore without its holders and waiters.
type Summary struct {
	Name      string
	Config    Config
	Effective int64 // the capacity now, on the way to the target
	InUse     int64
	Leases    int64
	Waiting   int64
	Sessions  int64
}

// Summary returns the snapshot without its holders and waiters.
func (s Snapshot) Summary(name string) Summary {
	return Summary{
		Name: name, Config: s.Config, Effective: s.Effective, InUse: s.InUse,
		Leases: int64(len(s.Leases)), Waiting: int64(len(s.Queue)), Sessions: int64(len(s.Sessions)),
	}
}

// Summary returns a summary of the state as of the last call. Time that has passed
// since is not taken into account: a list must not write.
func (s *State) Summary(name string) Summary {
	return Summary{
		Name: name, Config: s.config, Effective: s.effective(), InUse: s.inUse,
		Leases: int64(len(s.leases)), Waiting: int64(s.line.Len()), Sessions: int64(len(s.sessions)),
	}
}
