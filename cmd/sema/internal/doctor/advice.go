package doctor

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/sema-go/sema"
	"github.com/sema-go/sema/cmd/sema/internal/exit"
	"github.com/sema-go/sema/cmd/sema/internal/explain"
	"github.com/sema-go/sema/cmd/sema/internal/store"
	"github.com/sema-go/sema/fleet"
)

// A cause is a class of store errors, with advice.
type cause struct {
	check  string
	fault  fleet.Fault // "": only the texts identify the cause
	texts  []string    // lower case; the error contains one of them
	advice string
}

// causes are tried in order. Causes with texts come before their whole class: a full disk, an
// exceeded quota and a full memory are the same fault.
var causes = []cause{
	{"TLS", fleet.FaultTLS, []string{"tls:", "x509:", "first record does not look like", "server refused tls"},
		"use TLS on both sides or on neither (rediss://, semas://, sslmode=, tls=on); the certificate must be for this host, and signed by an authority that this machine trusts (ca=, sslrootcert=)"},
	{"open", "", []string{"disk image is malformed", "file is not a database", "the file is damaged"},
		damagedAdvice},
	{"tables", "", []string{"sema migrate"}, "run 'sema migrate' with this store, as a user that may create tables"},
	{"tables", "", []string{"was created by a newer program"}, "use a version of Sema that is at least as new as the one that created or upgraded the tables"},
	{"database", "", []string{"3d000"}, "check the name of the database in the URL; a database that was lost is restored or created, and then needs 'sema migrate'"},
	{"disk", "", []string{"no space left", "disk is full", "database or disk is full", "disk full", "make room on the disk", "53100", "misconf"},
		"the disk of the store is full, or cannot be written to: free space on it; the store then continues by itself"},
	{"quota", "", []string{"database space exceeded", "nospace"},
		"etcd has reached its quota: compact and defragment it, then 'etcdctl alarm disarm'; raise --quota-backend-bytes if that is too little"},
	{"memory", "", []string{"oom command not allowed", "out of memory", "53200"},
		"the server has reached its memory limit: raise maxmemory, or remove other data from it"},
	{"space", fleet.FaultFull, nil, "the store is full: free space in it"},
	{"permissions", "", []string{"readonly database", "unable to open database"}, "let this user write to the file and to its directory"},
	{"replica", fleet.FaultReadOnly, []string{"readonly", "read-only", "25006", "standby"},
		"this server is read-only, as replicas and standbys are: name the primary, or let the client find it (sentinel=, target_session_attrs=read-write); if there is none, promote one"},
	{"replicas", "", []string{"noreplicas"}, "the server has too few replicas to accept writes (min-replicas-to-write): start them"},
	{"authenticate", "", []string{"wrongpass", "noauth", "password", "28p01", "28000", "it wants a user"},
		"check user and password in the URL; special characters in them are written as %XX"},
	{"permissions", "", []string{"noperm", "permission denied", "42501"}, "grant the user what docs/stores.md lists (Rights)"},
	{"authenticate", fleet.FaultAccess, nil, "check user, password or token, and their rights"},
	{"owner", "", []string{"owner"}, "stop the other process, or reach its semaphores through it: sema serve"},
	{"quorum", "", []string{"majority"}, "start the members that are down: etcdctl endpoint status --cluster"},
	{"reply", "", []string{"deadline", "in time", "timeout", ": eof", "unexpected eof"},
		"a program accepts connections there, but does not reply like this store: check the port, whether the server uses TLS, and whether the server is stopped or overloaded"},
}

// damagedAdvice contains the steps for a damaged SQLite file.
const damagedAdvice = "stop the program that owns the file, move it away together with the files -wal and -shm beside it, wait for the longest TTL of its semaphores, and start the program again: it creates a new file (docs/failover.md, SQLite)"

// withSteps replaces the advice for a damaged file, which could be opened, by the steps.
func withSteps(findings []fleet.Finding) []fleet.Finding {
	for i, f := range findings {
		if f.Check == "file" && f.Level == fleet.LevelProblem {
			findings[i].Advice = damagedAdvice
		}
	}
	return findings
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

// tokenAdvice returns the advice for an operation that a service denies because of the token, ""
// for other errors.
func tokenAdvice(err error) string {
	if !errors.Is(err, fs.ErrPermission) || fleet.FaultOf(err) != fleet.FaultAccess {
		return ""
	}
	return sema.Hint(err) + "; 'sema doctor' needs a token with all verbs and without a prefix"
}

// openFinding returns the finding for a server that accepted the connection and then failed.
func openFinding(u store.URL, err error) fleet.Finding {
	f := fleet.Finding{Check: "open", Level: fleet.LevelProblem, Seen: explain.WithoutPrefix(err.Error()), Advice: "see docs/stores.md for the requirements on the URL and the server"}
	var coded *exit.Error
	if advice := tokenAdvice(err); advice != "" {
		f.Check, f.Advice = "authenticate", advice
	} else if errors.As(err, &coded) {
		f.Advice = "check the path, and that this user can write to its directory: 'sema serve', or the first acquire, creates the file"
	} else if c, known := causeOf(err); known && !(c.check == "reply" && isStoreOfService(u, err)) {
		f.Check, f.Advice = c.check, c.advice
	} else if isStoreOfService(u, err) {
		f.Advice = "the server replies, but its store does not: run 'sema doctor --store URL' with the store of the server"
	}
	return f
}

// isStoreOfService reports whether a service has replied that its store is unavailable. The errors
// of a service that cannot be reached, or does not reply, name it "the sema service".
func isStoreOfService(u store.URL, err error) bool {
	s := u.Scheme()
	return (s == "sema" || s == "semas") && errors.Is(err, sema.ErrUnavailable) && !strings.Contains(err.Error(), "the sema service at")
}

// useFinding returns the finding for a store that was reached but fails a step.
func useFinding(step string, err error) fleet.Finding {
	f := fleet.Finding{Check: "use", Level: fleet.LevelProblem, Seen: step + " fails: " + explain.WithoutPrefix(err.Error()), Advice: "see docs/stores.md for the requirements on the server"}
	if advice := tokenAdvice(err); advice != "" {
		f.Advice = advice
	} else if c, known := causeOf(err); known {
		f.Advice = c.advice
	}
	if errors.Is(err, sema.ErrTimeout) && fleet.FaultOf(err) == "" {
		f.Level, f.Seen = fleet.LevelWarning, "nothing was granted within "+useTimeout.String()
		f.Advice = "a Redis that was just started, or promoted, grants nothing for a TTL; retry in a minute"
	}
	return f
}
