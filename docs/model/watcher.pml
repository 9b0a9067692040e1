/*
 * One waiter watches the context that several share: queue.go, and park, leave
 * and compete of park.go.
 *
 * Waiters of one context, and with OTHER one of another, ask for one permit
 * each. The contexts end, at any moment. One waiter, whichever, may also have
 * a wait limit, which passes at any moment or not. Whoever is granted the
 * permit keeps it for good or gives it to the next. So nobody is sure to be
 * served, and a follower that nobody tells of the end of its context sleeps
 * for ever: an invalid end state.
 *
 * The word is left to handoff.pml: a give always goes to the lock here, as if
 * a flag were up. One step is a critical section up to its first send, or on
 * to the next, or one send or receive outside. Sends with the mutex held end a
 * step, since the receiver may run before the mutex is left.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   WAITERS=n      how many, 3 unless told
 *   OTHER          the last of them has another context
 *   ROUNDS=n       how often each asks, with the same waiter, 1 unless told
 *   FOLLOW_FROM=n  the length of line from which one follows, 1 unless told
 *   CLOSE          somebody closes the semaphore, at any moment
 *   UNFAIR         the head is woken to compete, arrivals may be faster;
 *                  whether it has waited too long is left to chance
 *   ROOM=n         of a token channel, 3 unless told
 *   MUTANT_...     a protocol broken on purpose: an error must be found
 */

#ifndef WAITERS
#define WAITERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef FOLLOW_FROM
#define FOLLOW_FROM 1
#endif
#ifndef ROOM
#define ROOM 3          /* tokensAtMost */
#endif

#define NOBODY 255

/* The processes: waiters, then these. */
#define GIVER  WAITERS
#define CLOSER (WAITERS + 1)

#define GRANTED     1
#define CANCELLED   2
#define TIMED_OUT   3
#define CLOSED      4
#define WATCH_DONE  5   /* not final, sent with the mutex held */
#define COMPETE_NOW 6   /* not final, sent with the mutex held */
#define FINAL(v)    ((v) != WATCH_DONE && (v) != COMPETE_NOW)

#ifdef OTHER
#define CONTEXT(id) ((id) == WAITERS - 1)
#else
#define CONTEXT(id) 0
#endif

bool ended[2];

/* The mutex and what it guards. */
byte mu = NOBODY;
byte free = 0;
byte line[WAITERS];     /* head first */
byte inLine = 0;
byte watcher = NOBODY;
byte followers = 0;
byte competitor = NOBODY;
bool starving = false;
bool shut = false;
bool follows[WAITERS];
bool promoted[WAITERS];
byte verdict[WAITERS];

chan token[WAITERS] = [ROOM] of { byte };

/* Not in the code, for the properties only. */
byte limited;           /* the waiter that has a wait limit, or NOBODY */
byte arrived = 0;
byte owed[WAITERS];     /* verdicts decided but not yet received */
byte coming = 1;        /* permits whose give has not begun */
byte held = 0;
byte inFlight = 0;
byte finished = 0;

#define FOLLOWER(w) (follows[w] && !promoted[w])

/* LOCK stands first in an atomic step, with the first thing done under the
 * mutex, and unlock last: nothing can happen between that anybody could tell
 * from its happening before the one or after the other. */
#define LOCK mu == NOBODY -> mu = _pid
#define MINE assert(mu == _pid)

/* ---------------------------------------------------- the line, under mu */

/* find leaves in at where w stands, or inLine if it does not: the code knows by
 * the waiter's verdict. */
inline find(w) {
	at = 0;
	do
	:: at < inLine && line[at] != w -> at++
	:: else -> break
	od
}

/* unlock leaves the mutex, what it guards being in order. */
inline unlock() {
	MINE;
	at = 0;
	w = 0;
	do
	:: at < inLine ->
		if
		:: FOLLOWER(line[at]) ->
			/* somebody watches for it, and the right context */
			assert(watcher != NOBODY && CONTEXT(line[at]) == CONTEXT(watcher));
			w++
		:: else
		fi;
		at++
	:: else -> break
	od;
	assert(w == followers);
	w = 0;
	if
	:: watcher != NOBODY -> find(watcher); assert(at < inLine && !FOLLOWER(watcher))
	:: else
	fi;
	if
	:: competitor != NOBODY -> find(competitor); assert(at < inLine)
	:: else -> assert(inLine == 0 || free == 0)     /* no wake-up lost */
	fi;
	at = 0;
	mu = NOBODY
}

inline push(w) {
	MINE;
	line[inLine] = w;
	if
	:: watcher == NOBODY -> watcher = w
	:: watcher != NOBODY && CONTEXT(watcher) == CONTEXT(w) && inLine >= FOLLOW_FROM ->
		follows[w] = true;
		followers++
	:: else
	fi;
	inLine++
}

/* tell sends a token. It must not block, above all not with mu held. */
inline tell(w, v) {
	assert(nfull(token[w]));
	token[w] ! v
}

/* elect tells the last follower in line to watch. */
inline elect() {
	watcher = NOBODY;
	if
	:: followers > 0 ->
		at = inLine - 1;
		do
		:: !FOLLOWER(line[at]) -> at--
		:: else -> break
		od;
		watcher = line[at];
		at = 0;
		followers--;
#ifndef MUTANT_NOT_MARKED
		promoted[watcher] = true;
#endif
#ifdef MUTANT_LEAD_AFTER_UNLOCK
		lead = watcher
#else
		tell(watcher, WATCH_DONE)
#endif
	:: else
	fi
}

inline remove(w) {
	MINE;
	find(w);
	assert(at < inLine);
	do
	:: at + 1 < inLine -> line[at] = line[at+1]; at++
	:: else -> break
	od;
	inLine--;
	line[inLine] = 0;
	at = 0;
	if
	:: FOLLOWER(w) -> followers--
	:: !FOLLOWER(w) && watcher == w ->
#ifdef MUTANT_LEAVE_UNELECTED
		watcher = NOBODY
#else
		elect()
#endif
	:: else
	fi
}

inline pull(w) {
	remove(w);
	if
	:: competitor == w -> competitor = NOBODY
	:: else
	fi
}

/* decide: w, out of line, will be told v after unlocking. */
inline decide(w, v) {
	assert(owed[w] == 0);           /* nobody gets two verdicts */
	verdict[w] = v;
	owed[w] = 1;
	out[outs] = w;
	outs++
}

/* disband takes the followers out of line; their context has ended. */
inline disband() {
	do
	:: at < inLine && FOLLOWER(line[at]) ->
		w = line[at];
#ifdef MUTANT_DISBAND_KEEPS_COMPETITOR
		remove(w);
#else
		pull(w);
#endif
		decide(w, CANCELLED);
		at = 0
	:: at < inLine && !FOLLOWER(line[at]) -> at++
	:: at == inLine -> break
	od;
	at = 0;
	w = 0
}

/* ---------------------------------------------------------------- settle */

inline dismissHead(v) {
	w = line[0];
	pull(w);
	decide(w, v);
	w = 0
}

#ifdef UNFAIR
/* serveUnfair. A head that is overdue is served by hand. */
#define IDLE    (shut || inLine == 0)
#define STOPS   (IDLE || competitor != NOBODY && !starving || free == 0)

inline serveAndUnlock() {
	do
	:: atomic { STOPS ->
		if
		:: !shut && inLine == 0 -> starving = false
		:: else
		fi;
		unlock();
		break }
	:: atomic { !IDLE && starving && free > 0 ->
		free--;
		inFlight++;
		dismissHead(GRANTED);
		if
		:: starving = false
		:: inLine > 0           /* the next is overdue too */
		fi }
	:: d_step { !IDLE && !starving && competitor == NOBODY && free > 0 ->
		competitor = line[0];
		tell(competitor, COMPETE_NOW) }
	:: d_step { !IDLE && !starving && competitor == NOBODY && free == 0 ->
		starving = true }
	od
}
#else
inline serveAndUnlock() {
	do
	:: atomic { shut || inLine == 0 || free == 0 -> unlock(); break }
	:: d_step { !shut && inLine > 0 && free > 0 ->
		free--;
		inFlight++;
		dismissHead(GRANTED) }
	od
}
#endif

/* deliver sends one verdict. */
inline deliver() {
	tell(out[0], verdict[out[0]]);
	at = 0;
	do
	:: at + 1 < outs -> out[at] = out[at+1]; at++
	:: else -> break
	od;
	outs--;
	out[outs] = 0;
	at = 0
}

/* recycle: who may be reused is known to nobody and told nothing any more. */
inline recycle(w) {
	assert(empty(token[w]) && owed[w] == 0);
	assert(watcher != w && competitor != w);
	follows[w] = false;
	promoted[w] = false;
	verdict[w] = 0
}

/* ------------------------------------------------------------- processes */

/* The word decides who may take at once, see handoff.pml. */
#ifdef UNFAIR
#define MAY_TAKE (free > 0 && !starving && !shut)
#else
#define MAY_TAKE (free > 0 && inLine == 0 && !shut)
#endif

/* Waiters are numbered as they arrive: they are alike, so other orders would
 * only repeat what was searched. The one with another context is not. */
#ifdef OTHER
#define MAY_ARRIVE(id) (arrived == id || id == WAITERS - 1)
#else
#define MAY_ARRIVE(id) (arrived == id)
#endif

inline arrives(id) {
	if
	:: arrived == id -> arrived++
	:: else
	fi
}

/* Every path that settles does so at settles, and goes on as back says. */
#define GAVE     1
#define LEFT     2
#define COMPETED 3

proctype process(byte id) {
	byte rounds = ROUNDS;
	byte v, why, back;
	bool watches, won;
	byte at, w, outs, out[WAITERS];
#ifdef MUTANT_LEAD_AFTER_UNLOCK
	byte lead = NOBODY;
#endif

	if
	:: atomic { id == GIVER -> LOCK; coming--; free++; back = GAVE; goto settles }
	:: atomic { id == CLOSER -> LOCK; shut = true };
	   /* turnAway: everybody in line, those just told to watch included */
	   do
	   :: d_step { inLine > 0 -> dismissHead(CLOSED) }
	   :: atomic { inLine == 0 -> back = GAVE; goto settles }
	   od
	:: id < WAITERS && MAY_ARRIVE(id)
	fi;

acquires:
	/* enter. An ended context may have been looked at just before it ended. */
	atomic {
		if
		:: ended[CONTEXT(id)] -> arrives(id); goto returns
		:: MAY_TAKE -> arrives(id); free--; held++; goto holds
		:: LOCK;
		   arrives(id);
		   if
		   :: shut -> mu = NOBODY; goto returns
		   :: MAY_TAKE -> free--; held++; mu = NOBODY; goto holds
		   :: else -> push(id); unlock()
		   fi
		fi;
		watches = !follows[id]
	};

parked:
	do
	:: atomic {
		token[id] ? v;
		if
#ifdef MUTANT_DEAF
		:: v == WATCH_DONE -> v = 0
#else
		:: v == WATCH_DONE -> v = 0; watches = true
#endif
		:: v == COMPETE_NOW -> v = 0; goto competes
		:: FINAL(v) ->
			owed[id]--;
			recycle(id);
			assert(v != CANCELLED || ended[CONTEXT(id)]);
			if
			:: v != GRANTED -> goto returns
			:: v == GRANTED && !ended[CONTEXT(id)] -> inFlight--; held++; goto holds
			:: else -> inFlight--; held++; goto gives
			fi
		fi
	   }
	:: atomic { watches && ended[CONTEXT(id)] -> why = CANCELLED; break }
	:: atomic { limited == id -> why = TIMED_OUT; break }
	od;

	/* leave */
	atomic {
		LOCK;
		find(id);
		if
		:: at == inLine -> at = 0; mu = NOBODY; goto outrun
		:: else -> at = 0
		fi;
		if
#ifdef MUTANT_ANYBODY_DISBANDS
		:: why == CANCELLED -> disband()
#else
		:: why == CANCELLED && watcher == id -> disband()
#endif
		:: else
		fi;
		pull(id);
		back = LEFT;
		goto settles
	};

outrun:
	/* finalToken: a verdict was faster and is certain to come. */
	atomic {
		token[id] ? v;
		if
		:: !FINAL(v) -> v = 0; goto outrun
		:: else
		fi;
		owed[id]--;
		recycle(id);
		if
		:: v != GRANTED -> goto returns
		:: v == GRANTED && why == TIMED_OUT -> inFlight--; held++; goto holds
		:: else -> inFlight--; held++; goto gives
		fi
	};

competes:
	atomic {
		LOCK;
		find(id);
		if
		:: at == inLine -> at = 0; mu = NOBODY; goto parked
		:: else -> at = 0
		fi;
		competitor = NOBODY;
		if
		:: free > 0 -> free--; held++; pull(id); won = true
		:: else
		fi;
		back = COMPETED;
		goto settles
	};

holds:
	if
	:: goto returns         /* keeps the permit for good */
	:: skip
	fi;
gives:
	atomic { LOCK; held--; free++; back = GAVE };

settles:
	serveAndUnlock();
#ifdef MUTANT_LEAD_AFTER_UNLOCK
	if
	:: d_step { lead != NOBODY -> tell(lead, WATCH_DONE); lead = NOBODY }
	:: lead == NOBODY
	fi;
#endif
	/* One verdict per step, now that the mutex was left. */
	do
	:: d_step { outs > 0 -> deliver() }
	:: atomic { outs == 0 ->
		if
		:: back == GAVE -> back = 0; goto returns
		:: back == COMPETED && !won -> back = 0; goto parked
		:: back == LEFT || back == COMPETED && won -> break
		fi }
	od;
	/* Out of line by itself and not by a verdict. What else could be in its
	 * channel was sent under the mutex: drainTokens. */
	do
#ifndef MUTANT_NOT_DRAINED
	:: token[id] ? _
	:: atomic { empty(token[id]) ->
#else
	:: atomic { true ->
#endif
		recycle(id);
		won = false;
		if
		:: back == LEFT -> back = 0; goto returns
		:: back == COMPETED && ended[CONTEXT(id)] -> back = 0; goto gives
		:: else -> back = 0; goto holds
		fi }
	od;

returns:
	atomic {
		v = 0;
		why = 0;
		watches = false;
		rounds--;
		if
		:: rounds > 0 && id < WAITERS -> goto acquires
		:: else -> finished++
		fi
	}
}

/* The contexts end at any moment, but they do. */
proctype ender(byte c) {
	atomic { ended[c] = true; finished++ }
}

/* ------------------------------------------------------------ properties */

#define CONSERVED (coming + free + held + inFlight == 1)

/* check is stuck in its first step for as long as all is well. */
active proctype check() {
end:
	atomic { !CONSERVED -> assert(CONSERVED) }
}

init {
	byte i, processes;
	atomic {
		limited = NOBODY;
		do
		:: i < WAITERS -> run process(i); i++
		:: i < WAITERS && limited == NOBODY -> limited = i
		:: i == WAITERS -> break
		od;
		i = 0;
		run process(GIVER);
		run ender(0);
		processes = WAITERS + 2;
#ifdef OTHER
		run ender(1);
		processes++;
#endif
#ifdef CLOSE
		run process(CLOSER);
		processes++;
#endif
	}
	/* Everybody returns: not to get past this is an invalid end state. */
	atomic {
		finished == processes;
		assert(inLine == 0 && watcher == NOBODY);
		assert(followers == 0 && competitor == NOBODY && (shut || !starving));
		assert(inFlight == 0 && coming == 0 && mu == NOBODY);
		do
		:: i < WAITERS -> assert(empty(token[i]) && owed[i] == 0); i++
		:: else -> break
		od
	}
}
