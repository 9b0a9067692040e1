package doctor

import (
	"errors"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/fleet"
)

// A cause is a class of errors of stores, and what to do about it.
type cause struct {
	check  string
	fault  fleet.Fault // "" where texts alone tell
	texts  []string    // in lower case; one of them is in the error
	advice string
}

// causes are tried in order. Those that texts tell apart come before the class as a
// whole: a disk, a quota and a memory that are full are the same fault.
var causes = []cause{
	{"TLS", fleet.FaultTLS, []string{"tls:", "x509:", "first record does not look like", "server refused tls"},
		"use TLS on both sides or on neither (rediss://, semas://, sslmode=, tls=on); the certificate must be for this host, and signed by an authority that is trusted here (ca=, sslrootcert=)"},
	{"tables", "", []string{"sema migrate"}, "run 'sema migrate' with this store, as a user that may create tables"},
	{"disk", "", []string{"no space left", "disk is full", "database or disk is full", "disk full", "make room on the disk", "53100", "misconf"},
		"the disk of the store is full, or cannot be written to: free space on it; the store goes on by itself then"},
	{"quota", "", []string{"database space exceeded", "nospace"},
		"etcd has reached its quota: compact and defragment it, then 'etcdctl alarm disarm'; raise --quota-backend-bytes if that is too little"},
	{"memory", "", []string{"oom command not allowed", "out of memory", "53200"},
		"the server has reached its memory limit: raise maxmemory, or remove other data from it"},
	{"space", fleet.FaultFull, nil, "the store is full: free space in it"},
	{"permissions", "", []string{"readonly database", "unable to open database"}, "let this user write to the file and to its directory"},
	{"replica", fleet.FaultReadOnly, []string{"readonly", "read-only", "25006", "standby"},
		"this server is read-only, as replicas and standbys are: name the primary, or let the client find it (sentinel=, target_session_attrs=read-write)"},
	{"replicas", "", []string{"noreplicas"}, "the server has too few replicas to accept writes (min-replicas-to-write): start them"},
	{"authenticate", "", []string{"wrongpass", "noauth", "password", "28p01", "28000", "it wants a user"},
		"check user and password in the URL; special characters in them are written as %XX"},
	{"permissions", "", []string{"noperm", "permission denied", "42501"}, "grant the user what docs/stores.md lists"},
	{"authenticate", fleet.FaultAccess, nil, "check user, password or token, and what they allow"},
	{"owner", "", []string{"owner"}, "stop the other process, or reach its semaphores through it: sema serve"},
	{"quorum", "", []string{"majority"}, "start the members that are down: etcdctl endpoint status --cluster"},
	{"answer", "", []string{"deadline", "in time", "timeout", ": eof", "unexpected eof"},
		"something accepts connections there and does not respond as this store does: is it the right port, with TLS if it wants that and without if not, and is the server neither stopped nor overloaded?"},
}

// causeOf returns the class of an error.
func causeOf(err error) (c cause, known bool) {
	text, fault := strings.ToLower(err.Error()), fleet.FaultOf(err)
	for _, c := range causes {
		if fault != "" && fault == c.fault {
			return c, true
		}
		for _, t := range c.texts {
			if strings.Contains(text, t) {
				return c, true
			}
		}
	}
	return cause{}, false
}

// refused returns the finding of a server that accepted the connection and then failed.
func refused(err error) fleet.Finding {
	f := fleet.Finding{Check: "open", Level: fleet.LevelProblem, Seen: err.Error(), Advice: "see docs/stores.md for what the URL and the server have to be like"}
	var coded *exit.Error
	if errors.As(err, &coded) {
		f.Advice = "check the path, or create the file with the first program that uses it"
	} else if c, known := causeOf(err); known {
		f.Check, f.Advice = c.check, c.advice
	}
	return f
}

// unusable returns the finding of a store that was reached and in which a step fails.
func unusable(step string, err error) fleet.Finding {
	f := fleet.Finding{Check: "use", Level: fleet.LevelProblem, Seen: step + " fails: " + err.Error(), Advice: "see docs/stores.md for what the server has to be like"}
	if c, known := causeOf(err); known {
		f.Advice = c.advice
	}
	if errors.Is(err, sema.ErrTimeout) && fleet.FaultOf(err) == "" {
		f.Level, f.Seen = fleet.LevelWarning, "nothing was granted within "+useTimeout.String()
		f.Advice = "a Redis that was just started, or promoted, grants nothing for a TTL; try again in a minute"
	}
	return f
}
