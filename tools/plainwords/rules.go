package main

import "regexp"

// A phrase is a form of words that prose does not use: comments, messages, documents.
type phrase struct {
	pattern *regexp.Regexp
	want    string   // what to write instead, or why not
	except  []string // texts around it that make it right
}

// phrases are the rules for prose. The reasons are those of the project's glossary: one
// word per concept, no personification, no clause as a subject.
var phrases = []phrase{
	rule(`who|whom|whoever|whomever`, "name the role: caller, client, waiter, holder, operator, user", "who="), // a log attribute
	rule(`some(body|one)|no(body| one)|any(body|one)|every(body|one)`, "name the role: caller, client, waiter, holder, operator, user"),
	rule(`stranger|folks`, "name the role"),
	rule(`unless told|is told|was told|are told|told|tells?|telling`, "notify, report, pass; a default is written \"default 15s\""),
	rule(`said|says?|saying`, "report, state, contain"),
	rule(`hears?|heard|hearing`, "receive"),
	rule(`speaks?|spoke|spoken|speaking`, "send"),
	rule(`answer(s|ed|ing)?`, "reply, respond"),
	rule(`news`, "change, notification"),
	rule(`signs? of life`, "heartbeat"),
	rule(`patien(ce|t|tly)|impatient`, "timeout"),
	rule(`refus(e|es|ed|al|als|ing)`, "reject (an error), deny (authorisation)", "refused", "ECONNREFUSED"),
	rule(`turn(s|ed|ing)? away`, "reject"),
	rule(`(give|gives|gave|given|giving) (it |them |one |permits |a permit )?back`, "release, return"),
	rule(`(take|takes|took|taken|taking) (it |them |one )?(back|away)`, "revoke, cancel, remove"),
	rule(`lets? go|letting go`, "release"),
	rule(`(stand|stands|standing|stood|wait|waits|waiting) in line|place in line|the line of waiters`, "queue"),
	rule(`(be|is|are|was|were|been) let in|lets? in`, "grant, admit"),
	rule(`(permit|permits|lease|leases|one|all|it) (is|are|was|were) out([,.;:)]|$)`, "held, in use"),
	rule(`engines?`, "store", "storage engine", "|engine"), // the pattern of words that clients must not see
	rule(`wish(es|ed)?`, "request, operation"),
	rule(`fates?|verdicts?`, "result, status"),
	rule(`dead`, "expired, ended, killed", "dead rows", "dead tuples"),
	rule(`silent`, "that does not reply"),
	rule(`reign(s|ed)?`, "fail-open"),
	rule(`albums?|portraits?|at a glance`, "cache, history, snapshot"),
	rule(`believ(e|es|ed|ing)`, "no personification: assume, use"),
	rule(`(is|are|was) (when|who)`, "start with a verb: returns, reports"),
	rule(`(be|been) had`, "acquired"),
	rule(`(has|have) (it|them|a|an|the|one|each|all|its)( \w+){0,2} be`, "name the action: X does Y"),
	rule(`in a word|without a word|a word of|the word of`, "message, notification"),
	rule(`force-releas(e|es|ed)`, "revoke"),
	rule(`re-?open(s|ed)?`, "resume (a drained semaphore); open again"),
	rule(`at hand|by and by|lest|thereof|hereby|whence|hence|likewise`, "use a plain word"),
}

// names are the words that identifiers do not contain.
var names = map[string]string{
	"engine": "store", "engines": "stores", "wish": "request", "wishes": "requests",
	"hear": "receive", "hears": "receives", "heard": "received", "unheard": "unconfirmed",
	"speak": "send", "speaks": "sends", "spoke": "sent",
	"tell": "notify", "tells": "notifies", "told": "notified",
	"said": "reported", "says": "reports", "say": "report",
	"answer": "reply", "answers": "replies", "answered": "replied",
	"news": "changes", "fate": "result", "verdict": "status", "patience": "timeout",
	"refuse": "reject", "refused": "rejected", "refuses": "rejects", "refusal": "rejection",
	"nobody": "the role", "somebody": "the role", "anybody": "the role", "everybody": "the role",
	"who": "the role", "whom": "the role", "stranger": "the role",
	"aside": "fail-open", "reign": "fail-open", "desk": "the mechanism", "album": "cache", "portrait": "snapshot",
	"reopen": "resume", "dead": "expired", "silent": "the state",
}

func rule(words, want string, except ...string) phrase {
	return phrase{regexp.MustCompile(`(?i)(^|[^\w-])(` + words + `)($|[^\w-])`), want, except}
}
