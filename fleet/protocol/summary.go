package protocol

// MaxPage is the highest number of semaphores on a page of a list, and the default.
const MaxPage = 1000

// A ListQuery selects a page of the semaphores of a store.
type ListQuery struct {
	Prefix string // of the names; "": all
	After  string // only names after this one in byte order; "": from the first
	Limit  int    // page size; 0 and values above MaxPage mean MaxPage
}

// Most returns the highest number of semaphores on the page.
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
	Effective int64 // the current capacity, which may be rising to the target
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

// Summary returns a summary of the state as of the last call. It does not account for the time
// since then, because a list must not write.
func (s *State) Summary(name string) Summary {
	return Summary{
		Name: name, Config: s.config, Effective: s.effective(), InUse: s.inUse,
		Leases: int64(len(s.leases)), Waiting: int64(s.queue.Len()), Sessions: int64(len(s.sessions)),
	}
}
