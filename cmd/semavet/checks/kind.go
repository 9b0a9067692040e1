package checks

import (
	"go/types"
	"slices"
)

// A kind is a kind of value that must be released.
type kind struct {
	noun     string
	path     string   // the package of its type; "" for a function
	name     string   // the name of its type
	releases []string // methods that release it, of which the first may be deferred and repeated; nil: it is a function to be called
	argument string   // of the first of releases; "": none
	neutral  []string // methods that neither release nor transfer it
	uses     []string // methods that are of use only if the acquire succeeded
	proof    []string // methods that show whether the acquire succeeded
	missing  string   // the report of a path without a release; %[1]s is the variable
	lost     string   // what happens if it is discarded, and what to do instead
}

// grantedKinds are the kinds that functions return with an error or a bool. A
// type that is added here is known to all analyzers.
var grantedKinds = []*kind{permit, item, admission}

var (
	permit = &kind{noun: "permit", path: semaPath, name: "Permit", releases: []string{"Release", "ReleaseFirst"},
		neutral: []string{"Weight", "Held", "Slots", "Owner", "Lost", "Err", "Context", "String", "GoString", "LogValue"},
		uses:    []string{"Context", "Split", "Lost", "Lease"},
		proof:   []string{"Held", "Weight", "Slots"},
		missing: "%[1]s is not released",
		lost:    "it can never be released; store it and defer its Release"}
	item = &kind{noun: "item", path: poolPath, name: "Item", releases: []string{"Release", "Discard"},
		neutral: []string{"Value", "Held", "Permit"},
		uses:    []string{"Value", "Keep"},
		proof:   []string{"Held"},
		missing: "%[1]s is not released",
		lost:    "it never returns to the pool; store it and defer its Release"}
	admission = &kind{noun: "admission", path: admitPath, name: "Admission", releases: []string{"Done"}, argument: "admit.Failed",
		neutral: []string{"Settle", "Degraded", "Context"},
		uses:    []string{"Settle", "Context"},
		missing: "%[1]s.Done is not called",
		lost:    "its permits can never be released; store it and defer its Done"}
	ticket = &kind{noun: "ticket", path: semaPath, name: "Ticket", releases: []string{"Cancel"},
		neutral: []string{"Ready", "String", "GoString", "LogValue"},
		missing: "neither %[1]s.Cancel nor %[1]s.Permit is called",
		lost:    "it stays queued and keeps its permit once granted; store it and defer its Cancel"}
	cancel = &kind{noun: "cancel function",
		missing: "%[1]s is not called",
		lost:    "the goroutine that watches the permit never ends; store it and defer it"}
)

// A source is a method that returns a value to release and no error.
type source struct {
	path, receiver, method string
	kind                   *kind
	index                  int // of the value among the results
}

var sources = []source{
	{semaPath, "Permit", "Context", cancel, 1},
	{semaPath, "Semaphore", "Request", ticket, 0},
	{poolPath, "Item", "Keep", permit, 1},
	{admitPath, "Admission", "Context", cancel, 1},
}

// sourceOf returns the source that fn is, nil if it is none.
func sourceOf(fn *types.Func) *source {
	for i, s := range sources {
		if fn.Name() == s.method && isMethodOf(fn, s.path, s.receiver) {
			return &sources[i]
		}
	}
	return nil
}

// grantedKindOf returns the granted kind whose type is t, nil if there is none.
func grantedKindOf(t types.Type) *kind {
	for _, k := range grantedKinds {
		if isNamed(t, k.path, k.name) {
			return k
		}
	}
	return nil
}

// isGranted reports whether functions return the kind with an error or a bool.
// The release of such a value is to be deferred, outside loops and after the
// error is checked.
func (k *kind) isGranted() bool { return slices.Contains(grantedKinds, k) }

// releaseCall returns the call that releases the value in a variable.
func (k *kind) releaseCall(variable string) string {
	if k.releases == nil {
		return variable + "()"
	}
	return variable + "." + k.releases[0] + "(" + k.argument + ")"
}
