/*
 * The word, the line and the hand-off of a core: word.go, core.go, settle.go
 * and park.go without the sharing of contexts, which is in watcher.pml.
 *
 * Acquirers of weight 1 and 2 share two permits. Each may give up at any
 * moment, because its context ends or because its time is up, or never. A
 * resizer shrinks the capacity, to 1 or to 0 (paused), and grows it back.
 *
 * One step here is one atomic operation of the code: a load, a compare-and-
 * swap, an add, taking or leaving the mutex, a send or a receive. What the
 * mutex guards is seen by its holder alone, so work on it is done in the step
 * of an atomic operation next to it; the model asserts that only the holder
 * does so. Everything else interleaves freely.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   ACQUIRERS=n   how many acquire, 3 unless told; weights alternate 1, 2
 *   ROUNDS=n      how often each does, 1 unless told
 *   RESIZE        with the resizer
 *   UNFAIR        arrivals may take past the line, the head is woken to compete;
 *                 whether it has waited too long is left to chance
 *   MUTANT_...    a protocol broken on purpose: an error must be found
 */

#ifndef ACQUIRERS
#define ACQUIRERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif

#define CAPACITY 2
#define NOBODY   255

/* The word: free permits below, two flags above. */
#define WAITING  32
#define SLOW     16
#define FREE     (word & 15)

/* Verdicts. The last three also say how a wait may be cut short. */
#define GRANTED   1
#define TOO_LARGE 2
#define CANCELLED 3
#define TIMED_OUT 4
#define NEVER     5
#define COMPETE_NOW 6   /* not final, sent with the mutex held */

byte word = CAPACITY;

/* The mutex and what it guards. */
byte mu = NOBODY;
byte capacity = CAPACITY;
byte debt = 0;
byte line[ACQUIRERS];   /* waiters, head first */
byte inLine = 0;
byte verdict[ACQUIRERS];
#ifdef UNFAIR
byte competitor = NOBODY;
bool starving = false;
#else
#define competitor NOBODY
#define starving   false
#endif

/* A waiter belongs to the acquirer of its number. There is room for the
 * tokens there can be, so a waiter that is woken twice is found out. */
#ifdef UNFAIR
#define ROOM 2
#else
#define ROOM 1
#endif
chan token[ACQUIRERS] = [ROOM] of { byte };

/* Not in the code, for the properties only. */
byte held = 0;          /* permits callers have */
byte inFlight = 0;      /* granted under the mutex, not yet received */
byte owed[ACQUIRERS];   /* tokens decided but not yet received, per waiter */
byte due = 0;           /* gives that saw a flag and have not settled yet */
bool shrunk = false;
byte finished = 0;

#define WEIGHT(id) (1 + ((id) & 1))
#define OVERSIZE(n) (capacity > 0 && (n) > capacity)
#ifdef UNFAIR
#define MUST_QUEUE (inLine > 0 && starving)
#else
#define MUST_QUEUE (inLine > 0)
#endif
#define IN_TURN (debt == 0 && !MUST_QUEUE)

#define LOCK   atomic { mu == NOBODY -> mu = _pid }
#define UNLOCK assert(mu == _pid); mu = NOBODY
#define MINE   assert(mu == _pid)

/* ---------------------------------------------------- the line, under mu */

/* find leaves in at where w stands, or inLine if it does not (not queued). */
inline find(w) {
	at = 0;
	do
	:: at < inLine && line[at] != w -> at++
	:: else -> break
	od
}

inline pull(w) {
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
#ifdef UNFAIR
	if
	:: competitor == w -> competitor = NOBODY
	:: else
	fi
#endif
}

/* dismiss: out of line with a final verdict, to be told after unlocking. */
inline dismiss(w, v) {
	pull(w);
	verdict[w] = v;
	owed[w]++;
	out[outs] = w;
	outs++;
	if
	:: v == GRANTED -> inFlight = inFlight + WEIGHT(w)
	:: else
	fi
}

/* -------------------------------------------------------------- the word */

/* CAS leaves in done whether it succeeded. The load was a step before. */
#define CAS(to) \
	if \
	:: word == old -> word = to; done = true \
	:: else -> done = false \
	fi

/* payDebt: takeUpTo(debt). */
inline payDebt() {
	do
	:: debt == 0 -> break
	:: debt > 0 && FREE == 0 -> break                       /* load */
	:: atomic { debt > 0 && FREE > 0 -> MINE; old = word }; /* load */
	   atomic {
		got = ((old & 15) < debt -> (old & 15) : debt);
		CAS(old - got);
		old = 0;
		if
		:: done -> done = false; debt = debt - got; got = 0; break
		:: else -> got = 0
		fi
	   }
	od
}

#define FLAGS ((inLine > 0 && competitor == NOBODY -> WAITING : 0) | \
               (debt > 0 || starving -> SLOW : 0))
#define DOWN  ((WAITING | SLOW) & ~FLAGS)

inline raiseFlags() {
	if
	:: (word & FLAGS) == FLAGS                              /* load */
	:: else -> d_step { MINE; word = word | FLAGS }         /* load, or */
	fi
}

inline lowerFlags() {
	if
	:: (word & DOWN) == 0                                   /* load */
	:: else -> d_step { MINE; word = word & ~DOWN }         /* load, and */
	fi
}

#ifdef MUTANT_SERVE_IN_DEBT
#define DEBT_STOPS false
#else
#define DEBT_STOPS (debt > 0)
#endif

#define HEAD WEIGHT(line[0])

#ifdef UNFAIR
/* serveUnfair */
inline serve() {
	do
	:: DEBT_STOPS -> break
	:: atomic { !DEBT_STOPS && inLine == 0 -> starving = false; break }
	:: !DEBT_STOPS && inLine > 0 && starving && FREE < HEAD -> break   /* load */
	:: atomic { !DEBT_STOPS && inLine > 0 && starving && FREE >= HEAD ->
		MINE; old = word };                                     /* load */
	   atomic {
		CAS(old - HEAD);
		old = 0;
		if
		:: done ->
			done = false;
			assert(debt == 0);
			w = line[0];
			dismiss(w, GRANTED);
			w = 0;
			if
			:: starving = false
			:: inLine > 0           /* and the next is overdue too */
			fi
		:: else
		fi
	   }
	:: !DEBT_STOPS && inLine > 0 && !starving && competitor != NOBODY -> break
	:: d_step { !DEBT_STOPS && inLine > 0 && !starving && competitor == NOBODY && FREE >= HEAD ->
		MINE;
		competitor = line[0];
		assert(nfull(token[competitor]));
		token[competitor] ! COMPETE_NOW };                      /* load, send */
	   break
	:: !DEBT_STOPS && inLine > 0 && !starving && competitor == NOBODY && FREE < HEAD ->
		if
		:: break
		:: d_step { starving = true; word = word | SLOW }       /* or */
		fi
	od
}
#else
/* serve: takeFlagged for the head, until one does not fit. */
inline serve() {
	do
	:: next >= inLine || DEBT_STOPS -> next = 0; break
	:: next < inLine && !DEBT_STOPS && FREE < WEIGHT(line[next]) -> /* load */
#ifdef MUTANT_SERVE_PAST_HEAD
		next++                  /* to somebody light enough */
#else
		break
#endif
	:: atomic {
		next < inLine && !DEBT_STOPS && FREE >= WEIGHT(line[next]) ->
			MINE;
			old = word                              /* load */
	   };
	   d_step {
		CAS(old - WEIGHT(line[next]));
		old = 0;
		if
		:: done ->
			done = false;
			assert(next == 0);      /* strictly in order of arrival */
			assert(debt == 0);      /* not before the debt is paid */
			w = line[next];
			dismiss(w, GRANTED);
			w = 0
		:: else
		fi
	   }
	od
}
#endif

inline settle() {
#ifdef MUTANT_RAISE_LATE
	payDebt();
	raiseFlags();
#else
	raiseFlags();
	payDebt();
#endif
	serve();
	lowerFlags()
}

/* deliver: one token per step, after the mutex was left. */
inline deliver() {
	do
	:: outs == 0 -> break
	:: d_step {
		outs > 0 ->
		assert(nfull(token[out[0]]));   /* a full channel would block */
		token[out[0]] ! verdict[out[0]];
		at = 0;
		do
		:: at + 1 < outs -> out[at] = out[at+1]; at++
		:: else -> break
		od;
		outs--;
		out[outs] = 0;
		at = 0
	   }
	od
}

/* give: add, then look at the flags in the value the add returned. */
inline give(n) {
#ifdef MUTANT_LOOK_THEN_ADD
	flagged = (word >= SLOW);
	atomic {
		word = word + n; held = held - n; has = 0;
#else
	atomic {
		word = word + n; held = held - n; has = 0;
		flagged = (word >= SLOW);
#endif
		if
		:: flagged -> flagged = false; due++
		:: else -> goto returned
		fi
	};
	LOCK;
	settle();
	atomic { UNLOCK; due-- };
	deliver();
	goto returned
}

/* drainTokens: what could be there was sent under the mutex. */
inline drainTokens(w) {
#ifdef UNFAIR
	do
	:: token[w] ? v
	:: empty(token[w]) -> v = 0; break
	od
#else
	skip
#endif
}

/* received: v is what the owner of w got from its channel. */
inline received(w) {
	if
	:: v == COMPETE_NOW
	:: v != COMPETE_NOW ->
		owed[w]--;
		if
		:: v == GRANTED -> inFlight = inFlight - n; held = held + n; has = n
		:: else
		fi;
		recycle(w)
	fi
}

/* A waiter that may be reused must not be told anything any more. */
inline recycle(w) {
	assert(owed[w] == 0);
	assert(empty(token[w]));
	verdict[w] = 0
}

/* ------------------------------------------------------------- acquirers */

/* Who comes now need not raise the flag: it is up, or a competitor on its way
 * will settle. */
#define STAND ((word & WAITING) || competitor != NOBODY)

proctype acquirer(byte id) {
	byte n = WEIGHT(id);
	byte has = 0;           /* permits the caller would call its own */
	byte how = 0;           /* how this wait may end early */
	byte rounds = ROUNDS;
	byte v;

	byte old, got, at, next, w, outs;
	byte out[ACQUIRERS];
	bool done, flagged;

again:
	/* takeAgain: no lock while no flag is up. */
	do
	:: word >= SLOW || FREE < n -> break                    /* load */
	:: atomic { word < SLOW && FREE >= n -> old = word };   /* load */
	   atomic {
#ifdef MUTANT_TAKE_WITHOUT_CAS
		word = old - n; done = true;
#else
		CAS(old - n);
#endif
		old = 0;
		if
		:: done ->
			done = false;
#ifndef UNFAIR
			assert(inLine == 0);    /* nobody is overtaken */
#endif
			held = held + n;
			has = n;
			goto holding
		:: else
		fi
	   }
	od;

#ifdef UNFAIR
	/* barge */
	do
	:: (word & SLOW) || FREE < n -> break                   /* load */
	:: atomic { !(word & SLOW) && FREE >= n -> old = word }; /* load */
	   atomic {
		CAS(old - n);
		old = 0;
		if
		:: done -> done = false; held = held + n; has = n; goto holding
		:: else
		fi
	   }
	od;
#endif

	/* enter */
	LOCK;
	if
	:: atomic { OVERSIZE(n) -> UNLOCK; goto returned }
	:: !OVERSIZE(n)
	fi;
	payDebt();
	do
	:: atomic { IN_TURN && FREE >= n -> MINE; old = word }; /* load */
	   d_step {
		CAS(old - n);
		old = 0;
		if
		:: done -> held = held + n; has = n
		:: else
		fi
	   };
	   if
	   :: atomic { done -> done = false; UNLOCK; goto holding }
	   :: !done
	   fi
	:: atomic { !(IN_TURN && FREE >= n) -> UNLOCK; goto returned }
	   /* full: it was a try. Chosen here, where tries part from waits. */
	:: !(IN_TURN && FREE >= n) && STAND -> break            /* load */
	:: atomic { !(IN_TURN && FREE >= n) && !STAND -> MINE; old = word };
	   atomic {
#ifdef MUTANT_RAISE_BLINDLY
		word = word | WAITING; done = true;
#else
		CAS(old | WAITING);
#endif
		old = 0;
		if
		:: done -> done = false; break
		:: else
		fi
	   }
	od;
	atomic { line[inLine] = id; inLine++; UNLOCK };

	/* park. How the wait may be cut short is chosen here, where it starts to
	 * matter; NEVER is what finds a waiter that is not woken. */
	if
	:: how = NEVER
	:: how = CANCELLED
	:: how = TIMED_OUT
	fi;
parked:
	if
	:: atomic { token[id] ? v; received(id) };
	   if
	   :: v == COMPETE_NOW -> goto compete
	   :: v == GRANTED && how == CANCELLED -> goto giveBack /* ended just now */
	   :: v == GRANTED -> goto holding
	   :: v != GRANTED && v != COMPETE_NOW -> goto returned
	   fi
	:: how != NEVER
	fi;

	/* leave */
	LOCK;
	atomic {
		find(id);
		if
		:: at == inLine -> at = 0; UNLOCK; goto outrun
		:: else -> at = 0; pull(id)
		fi
	};
#ifndef MUTANT_LEAVE_UNSETTLED
	settle();
#endif
	atomic { UNLOCK };
	deliver();
	drainTokens(id);
	atomic { recycle(id); goto returned };

#ifdef UNFAIR
compete:
	v = 0;
	LOCK;
	atomic {
		find(id);
		if
		:: at == inLine -> at = 0; UNLOCK; goto parked
		:: else -> at = 0;
#ifndef MUTANT_STAYS_COMPETITOR
			competitor = NOBODY
#endif
		fi
	};
	do
	:: debt > 0 || FREE < n -> break                        /* load */
	:: atomic { debt == 0 && FREE >= n -> MINE; old = word }; /* load */
	   atomic {
		CAS(old - n);
		old = 0;
		if
		:: done -> done = false; held = held + n; has = n; pull(id); break
		:: else
		fi
	   }
	od;
#ifndef MUTANT_COMPETE_UNSETTLED
	settle();
#endif
	atomic { UNLOCK };
	deliver();
	if
	:: has == 0 -> goto parked
	:: has > 0
	fi;
	drainTokens(id);
	atomic { recycle(id) };
	if
	:: how == CANCELLED -> goto giveBack
	:: goto holding
	fi;
#else
compete:
	assert(false);
#endif

outrun:
	/* A verdict was faster and is certain to come. */
#ifdef MUTANT_LEAVE_AT_ONCE
	atomic { recycle(id) };
#else
	atomic { token[id] ? v; received(id) };
#endif
	if
	:: v == COMPETE_NOW -> goto outrun
	:: v == GRANTED && how == TIMED_OUT -> goto holding
	:: v == GRANTED && how == CANCELLED ->
#ifdef MUTANT_KEEP_RACED_GRANT
		goto returned
#else
		goto giveBack
#endif
	:: v != GRANTED && v != COMPETE_NOW -> goto returned
	fi;

holding:
	assert(has == n);
giveBack:
	give(n);

returned:
	atomic {
		assert(has == 0);       /* above all if cancelled or refused */
		v = 0;
		how = 0;
		rounds--;
		if
		:: rounds > 0 -> goto again
		:: else -> finished++
		fi
	}
}

/* --------------------------------------------------------------- resizer */

proctype resizer() {
	byte to, old, got, at, next, w, outs;
	byte out[ACQUIRERS];
	bool done;

	if
	:: to = 0
	:: to = 1
	fi;

	/* setCapacity, shrinking */
	LOCK;
	d_step {
		debt = debt + capacity - to;
		capacity = to;
		shrunk = true
	};
	payDebt();
	/* resettle: who does not fit any more is refused; 0 refuses nobody. */
	atomic {
		MINE;
		do
		:: next < inLine && OVERSIZE(WEIGHT(line[next])) ->
			w = line[next];
			dismiss(w, TOO_LARGE)
		:: next < inLine && !OVERSIZE(WEIGHT(line[next])) -> next++
		:: next == inLine -> break
		od;
		next = 0;
		w = 0
	};
	settle();
	atomic { UNLOCK };
	deliver();

	/* setCapacity, growing: what is not needed to pay debt is added. */
	LOCK;
	d_step {
		got = CAPACITY - capacity;
		capacity = CAPACITY;
		to = (debt < got -> debt : got);
		debt = debt - to;
		word = word + got - to;
		got = 0;
		to = 0
	};
	settle();
	atomic { UNLOCK };
	deliver();
	finished++
}

/* ------------------------------------------------------------ properties */

#define CONSERVED (FREE + held + inFlight == capacity + debt)
#define IN_BOUNDS (shrunk || held + inFlight <= CAPACITY)
/* Somebody in line is seen by every take and every give. */
#ifdef UNFAIR
#define FLAGGED   (mu != NOBODY || inLine == 0 || (word & WAITING) || competitor != NOBODY)
#else
#define FLAGGED   (inLine == 0 || (word & WAITING))
#endif
/* The invariants of core, whenever the mutex is free and no give that saw a
 * flag is still on its way to it. */
#define AT_REST   (mu == NOBODY && due == 0)
#define SETTLED   (debt > 0 -> ((word & SLOW) && FREE == 0) \
                   : (inLine == 0 || competitor != NOBODY || FREE < HEAD))

#ifdef RESIZE
#define PROCESSES (ACQUIRERS + 1)
#else
#define PROCESSES ACQUIRERS
#endif

/* watch is stuck in its first step for as long as all is well. */
active proctype watch() {
end:
	atomic {
		!CONSERVED || !IN_BOUNDS || !FLAGGED || (AT_REST && !SETTLED) ->
			assert(CONSERVED);      /* no permit lost, none minted */
			assert(IN_BOUNDS);      /* never more out than there are */
			assert(FLAGGED);        /* a release cannot miss a waiter */
			assert(SETTLED)         /* no wake-up lost */
	}
}

init {
	byte i;
	atomic {
		do
		:: i < ACQUIRERS -> run acquirer(i); i++
		:: else -> break
		od;
#ifdef RESIZE
		run resizer();
#endif
		i = 0
	}
	/* Everybody returns: not to get past this is an invalid end state. */
	finished == PROCESSES;
	assert(held == 0 && inFlight == 0 && debt == 0 && inLine == 0);
	assert(mu == NOBODY && due == 0);
	assert(competitor == NOBODY && !starving);
	assert(word == CAPACITY)        /* all permits back, both flags down */
}
