/*
 * A joint waiter is in the queues of several cores and is granted all of them
 * or none: joint.go, tryJointLocked and finishLocked.
 *
 * Joint waiters acquire one permit of each of two cores, single waiters one
 * permit of one core, all of capacity 1. A joint waiter may be cancelled at any
 * moment, and a core may be closed at any moment.
 *
 * Steps are those of handoff.pml: one atomic operation each, mutexes locked
 * one after the other. Work on what a mutex guards is part of the step of an
 * atomic operation next to it.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   JOINTS=n    1 or 2 joint waiters, default 1
 *   SINGLES=n   0 to 2 single waiters, of core 0 and 1, default 2
 *   CLOSE       core 1 is closed
 *   CANCEL      joint waiters may be cancelled
 *   LIFO        three cores, the first of them LIFO; the joint waiters acquire
 *               cores 0 and 1, and 0 and 2, which are held at first
 *   MUTANT_...  a protocol broken on purpose: an error must be found
 */

#ifndef JOINTS
#define JOINTS 1
#endif
#ifndef SINGLES
#define SINGLES 2
#endif

#define WAITERS (JOINTS + SINGLES)      /* joints come first */
#define NONE    255

#ifdef LIFO
#define CORES 3
#define LAST(waiter)  (1 + (waiter))    /* a joint waits for core 0 and this */
#else
#define CORES 2
#define LAST(waiter)  1
#endif

#define IS_JOINT(w) ((w) < JOINTS)

/* The processes: waiters first, then these. A holder holds its core from the
 * start; the one of core 2 stays until joint waiter 0 has returned, which needs
 * only cores 0 and 1. */
#define CLOSER      WAITERS
#define HOLDER      (WAITERS + 1)
#define LONG_HOLDER (WAITERS + 2)

/* The word: free permits in the low bits, two flags above. */
#define WAITING  32
#define SLOW     16
#define FREE(c)  (word[c] & 15)

#define PENDING   0
#define GRANTED   1
#define CLOSED    2
#define CANCELLED 3

byte word[CORES];

/* The mutexes and what they guard. */
byte mu[CORES];
bool shut[CORES];
byte queued[CORES];
byte queue[CORES * WAITERS];    /* core by core, head first */
byte status[WAITERS];

/* The status of a joint waiter, atomic in itself. */
byte decided[JOINTS];

chan token[WAITERS] = [1] of { byte };

/* Not in the code, only for the properties. */
byte users[CORES];
byte finished = 0;
bool firstDone = false;         /* joint waiter 0 has returned */

/* Core 0 is LIFO: arrivals overtake its queue, and a joint waiter at its head
 * lets others pass. */
#ifdef LIFO
#define PASSES(c)   ((c) == 0)
#else
#define PASSES(c)   false
#endif

#define IN_TURN(c)  ((queued[c] == 0 || PASSES(c)) && FREE(c) > 0)
#define PLACE(c, i) queue[(c) * WAITERS + (i)]
#define MINE(c)     assert(mu[c] == _pid)

/* ------------------------------------------------------------- the queues */

inline find(c, waiter) {
	at = 0;
	do
	:: at < queued[c] && PLACE(c, at) != waiter -> at++
	:: else -> break
	od
}

inline dequeue(c, waiter) {
	MINE(c);
	find(c, waiter);
	assert(at < queued[c]);
	do
	:: at + 1 < queued[c] -> PLACE(c, at) = PLACE(c, at+1); at++
	:: else -> break
	od;
	queued[c]--;
	PLACE(c, queued[c]) = 0;
	at = 0
}

inline dequeueIfQueued(c, waiter) {
	find(c, waiter);
	if
	:: at < queued[c] -> dequeue(c, waiter)
	:: else -> at = 0
	fi
}

inline enqueue(c, waiter) {
	MINE(c);
	at = queued[c];
#ifdef LIFO
	if
	:: c == 0 ->
		do
		:: at > 0 -> PLACE(c, at) = PLACE(c, at-1); at--
		:: else -> break
		od
	:: else
	fi;
#endif
	PLACE(c, at) = waiter;
	queued[c]++;
	at = 0
}

/* finish. A rejection of a joint waiter counts only if it is the first status. */
inline finish(c, waiter, v) {
	dequeue(c, waiter);
	if
#ifndef MUTANT_DECIDED_TWICE
	:: IS_JOINT(waiter) && decided[waiter] != PENDING
#endif
	:: else ->
		if
		:: IS_JOINT(waiter) -> decided[waiter] = v
		:: else
		fi;
		status[waiter] = v;
		out[outs] = waiter;
		outs++
	fi
}

/* ---------------------------------------------------------------- settle */

#define CAS(c, to) \
	if \
	:: word[c] == old -> word[c] = to; done = true \
	:: else -> done = false \
	fi

#define FLAGS(c) ((queued[c] > 0 -> WAITING : 0) | (shut[c] -> SLOW : 0))
#define DOWN(c)  ((WAITING | SLOW) & ~FLAGS(c))

inline raiseFlags(c) {
	if
	:: (word[c] & FLAGS(c)) == FLAGS(c)
	:: else -> d_step { MINE(c); word[c] = word[c] | FLAGS(c) }
	fi
}

inline lowerFlags(c) {
	if
	:: (word[c] & DOWN(c)) == 0
	:: else -> d_step { MINE(c); word[c] = word[c] & ~DOWN(c) }
	fi
}

/* noteJoint records a joint waiter to attempt after the mutex is unlocked. */
inline noteJoint(waiter) {
#ifdef MUTANT_ONE_JOINT
	noted = 1 << waiter     /* a later one in the queue replaces it */
#else
	noted = noted | (1 << waiter)
#endif
}

inline servedAll() {
	todo = todo | noted;
	noted = 0;
	next = 0
}

#define HEAD(c)    PLACE(c, next)
#define IN_QUEUE(c) (next < queued[c])

inline serve(c) {
	do
	:: atomic { !IN_QUEUE(c) || shut[c] -> servedAll(); break }
	:: atomic { IN_QUEUE(c) && !shut[c] && IS_JOINT(HEAD(c)) ->
		/* tryJointLocked */
		MINE(c);
		w = HEAD(c);
		if
		:: decided[w] != PENDING -> dequeue(c, w)       /* already decided */
		:: else ->
			if
			:: FREE(c) > 0 -> noteJoint(w)
			:: else
			fi;
			if
			:: PASSES(c) -> next++
			:: else -> w = 0; servedAll(); break
			fi
		fi;
		w = 0 }
	:: atomic { IN_QUEUE(c) && !shut[c] && !IS_JOINT(HEAD(c)) && FREE(c) == 0 ->
		servedAll(); break }
	:: atomic { IN_QUEUE(c) && !shut[c] && !IS_JOINT(HEAD(c)) && FREE(c) > 0 ->
		MINE(c); old = word[c] };
	   d_step {
		CAS(c, old - 1);
		old = 0;
		if
		:: done ->
			done = false;
			w = HEAD(c);
			finish(c, w, GRANTED);
			w = 0
		:: else
		fi
	   }
	od
}

/* ------------------------------------------- critical sections and after */

/*
 * Every path that changed something ends in a section: lock the cores
 * concerned, do what mode selects, settle each core, unlock, and send the
 * statuses. That may lead to an attempt for a joint waiter and so to another
 * section. It is a loop where the code recurses. The order of sends is
 * nondeterministic where the code has an order.
 */
#define GIVE    1       /* permits were released */
#define LEAVE   2       /* subject, a joint waiter, leaves all queues */
#define ATTEMPT 3       /* grant subject if it is next and fits everywhere */
#define ENTER   4       /* the same for a waiter that just entered, mutexes held */
#define SHUT    5       /* the core closes */

/* A section covers one core, from == to, or the two of a joint waiter. */
#define NEXT_CORE(c) (c < to -> to : to + 1)

inline lockAll() {
	c = from;
	do
	:: atomic { c <= to && mu[c] == NONE -> mu[c] = _pid; c = NEXT_CORE(c) }
	:: atomic { c > to -> c = from; break }
	od
}

inline unlockAll() {
	do
	:: atomic { c <= to -> MINE(c); mu[c] = NONE; c = NEXT_CORE(c) }
	:: atomic { c > to -> c = from; break }
	od
}

/* firstServableLocked: decided waiters at the head are removed by any process that finds them. */
inline dequeueDecided(c) {
	do
	:: queued[c] > 0 && IS_JOINT(PLACE(c, 0)) && decided[PLACE(c, 0)] != PENDING ->
		w = PLACE(c, 0);
		dequeue(c, w);
		w = 0
	:: else -> break
	od
}

#ifdef MUTANT_ATTEMPT_OUT_OF_TURN
#define NEXT_IN(c, waiter) true
#else
#define NEXT_IN(c, waiter) (PASSES(c) || PLACE(c, 0) == waiter)
#endif

/* ------------------------------------------------------------- processes */

/* After the section. */
#define PARKS      1
#define HAS_ALL    2
#define GIVES_REST 3
#define RETURNS    4

proctype process(byte id) {
	byte v, back, mode, subject, from, to, c;
	byte at, next, w, old, noted, todo, outs, out[WAITERS];
	bool done, won, mayCancel;

	atomic {
		if
		:: IS_JOINT(id) -> to = LAST(id)
		:: id >= JOINTS && id < WAITERS -> c = id - JOINTS; goto acquires
		:: id == CLOSER -> mode = SHUT; from = 1; to = 1; back = RETURNS; goto section
		:: id == HOLDER -> c = 0; goto gives
		:: id == LONG_HOLDER -> c = 2; firstDone; goto gives
		fi
	};

	/* joint.enter: into all queues at one instant */
	lockAll();
	if
	:: shut[from] || shut[to] -> unlockAll(); goto returns
	:: else
	fi;
#ifdef MUTANT_LOOK_THEN_RAISE
	atomic { enqueue(from, id); enqueue(to, id) };
#else
	atomic { enqueue(from, id) };
	raiseFlags(from);
	atomic { enqueue(to, id) };
	raiseFlags(to);
#endif
#ifdef MUTANT_NO_FIRST_ATTEMPT
	unlockAll();
	goto parked;
#else
	atomic { mode = ENTER; subject = id; back = PARKS; goto locked };
#endif

parked:
	if
	:: mayCancel = false
#ifdef CANCEL
	:: mayCancel = true
#endif
	fi;
	if
	:: atomic {
		token[id] ? v;
		if
		:: v == GRANTED -> goto hasAll
		:: else -> goto leavesQueues
		fi }
	:: mayCancel
	fi;

	/* joint.leave */
	to = LAST(id);
	lockAll();
	atomic {
		if
		:: decided[id] == PENDING -> decided[id] = CANCELLED; v = CANCELLED
		:: else
		fi
	};
	unlockAll();
	if
	:: v == CANCELLED -> goto leavesQueues
	:: atomic { v != CANCELLED -> token[id] ? v;
		if
		:: v == GRANTED -> goto hasAll
		:: else -> goto leavesQueues
		fi }
	fi;

leavesQueues:
	atomic { v = 0; mode = LEAVE; subject = id; from = 0; to = LAST(id); back = RETURNS; goto section };

hasAll:
	/* It holds, or releases because its context has ended: that makes no
	 * difference to the others. */
	atomic {
		v = 0;
		assert(users[0] == 0 && users[LAST(id)] == 0);  /* all of it, alone */
		users[0] = 1;
		users[LAST(id)] = 1;
		c = 0
	};
	back = GIVES_REST;
	goto adds;
givesRest:
	atomic { c = LAST(id); goto gives };

acquires:
	/* takeAgain */
	do
	:: word[c] >= SLOW || FREE(c) == 0 -> break                     /* load */
	:: atomic { word[c] < SLOW && FREE(c) > 0 -> old = word[c] };   /* load */
	   atomic {
		CAS(c, old - 1);
		old = 0;
		if
		:: done ->
			done = false;
			/* no waiter is overtaken; a joint waiter that enters holds mu
			 * and is queued only when its flag is up */
			assert(queued[c] == 0 || mu[c] != NONE);
			goto has
		:: else
		fi
	   }
	od;
#ifdef LIFO
	/* barge */
	do
	:: !PASSES(c) || (word[c] & SLOW) || FREE(c) == 0 -> break      /* load */
	:: atomic { PASSES(c) && !(word[c] & SLOW) && FREE(c) > 0 -> old = word[c] };
	   atomic {
		CAS(c, old - 1);
		old = 0;
		if
		:: done -> done = false; goto has
		:: else
		fi
	   }
	od;
#endif
	/* enter and admitLocked */
	atomic {
		mu[c] == NONE -> mu[c] = _pid;
		if
		:: shut[c] -> mu[c] = NONE; goto returns
		:: else
		fi
	};
	do
	:: atomic { IN_TURN(c) -> MINE(c); old = word[c] };             /* load */
	   d_step { CAS(c, old - 1); old = 0 };
	   if
	   :: atomic { done -> done = false; mu[c] = NONE; goto has }
	   :: !done
	   fi
	:: !IN_TURN(c) && (word[c] & WAITING) -> break                  /* load */
	:: atomic { !IN_TURN(c) && !(word[c] & WAITING) -> MINE(c); old = word[c] };
	   atomic {
		CAS(c, old | WAITING);
		old = 0;
		if
		:: done -> done = false; break
		:: else
		fi
	   }
	od;
	atomic { enqueue(c, id); mu[c] = NONE };
	atomic {
		token[id] ? v;
		if
		:: v == GRANTED -> v = 0; goto has
		:: else -> v = 0; goto returns
		fi
	};

has:
	atomic {
		assert(users[c] == 0);
		users[c] = 1
	};
gives:
	back = RETURNS;
adds:
	/* give: add, then check the flags in the value that the add returned. */
	atomic {
		assert(users[c] == 1);
		users[c] = 0;
		word[c] = word[c] + 1;
		if
		:: word[c] >= SLOW -> mode = GIVE; from = c; to = c; goto section
		:: word[c] < SLOW && back == GIVES_REST -> back = 0; goto givesRest
		:: else -> back = 0; goto returns
		fi
	};

section:
	lockAll();
locked:
	if
	:: mode == GIVE
	:: atomic { mode == SHUT ->
		MINE(to);
		shut[to] = true;
		do
		:: queued[to] > 0 -> w = PLACE(to, 0); finish(to, w, CLOSED); w = 0
		:: else -> break
		od }
	:: atomic { mode == LEAVE ->
		dequeueIfQueued(from, subject);
		dequeueIfQueued(to, subject) }
	:: atomic { mode == ATTEMPT || mode == ENTER ->
		/* grantLocked, nextEverywhereLocked */
		if
		:: decided[subject] != PENDING -> goto unlocks
		:: else
		fi;
		dequeueDecided(from);
		dequeueDecided(to);
		if
		:: NEXT_IN(from, subject) && NEXT_IN(to, subject)
		:: else -> goto unlocks
		fi };
	   /* takeEverywhereLocked */
	   do
	   :: atomic { c <= to && FREE(c) == 0 ->                       /* load */
		if
		:: c == from -> goto unlocks
		:: else -> c = from
		fi };
#ifndef MUTANT_KEEP_HALF
	      d_step { MINE(c); word[c] = word[c] + 1 };                /* add */
#endif
	      goto unlocks
	   :: atomic { c <= to && FREE(c) > 0 -> MINE(c); old = word[c] };
	      d_step {
		CAS(c, old - 1);
		old = 0;
		if
		:: done -> done = false; c = NEXT_CORE(c)
		:: else
		fi
	      }
	   :: atomic { c > to ->
		c = from;
		won = true;
		assert(PASSES(from) || PLACE(from, 0) == subject);
		assert(PASSES(to) || PLACE(to, 0) == subject); /* in turn */
		decided[subject] = GRANTED;
		dequeue(from, subject);
		dequeue(to, subject);
		break }
	   od
	fi;
	do
	:: c <= to ->
#ifdef MUTANT_WITHDRAW_UNSETTLED
		if
		:: mode != GIVE -> goto unlocks
		:: else
		fi;
#endif
		raiseFlags(c);
		serve(c);
		lowerFlags(c);
		c = NEXT_CORE(c)
	:: atomic { c > to -> c = from; break }
	od;
unlocks:
#ifdef MUTANT_LOOK_THEN_RAISE
	raiseFlags(from);
	raiseFlags(to);
#endif
	unlockAll();
	if
	:: d_step { won && mode == ATTEMPT ->
		won = false;
		assert(nfull(token[subject]));
		token[subject] ! GRANTED }
	:: d_step { won && mode == ENTER -> won = false; back = HAS_ALL }
	:: !won
	fi;
	do
	:: d_step { outs > 0 ->
		outs--;
		w = out[outs];
		out[outs] = 0;
		assert(nfull(token[w]));        /* at most one status each */
		token[w] ! status[w];
		status[w] = 0;
		w = 0 }
	:: atomic { todo != 0 ->
		if
		:: todo & 1 -> subject = 0
		:: todo & 2 -> subject = 1
		fi;
		todo = todo & ~(1 << subject);
		mode = ATTEMPT;
		from = 0;
		to = LAST(subject);
		goto section }
	:: atomic { outs == 0 && todo == 0 ->
		mode = 0; subject = 0; from = 0; to = 0; c = 0;
		if
		:: back == PARKS -> back = 0; goto parked
		:: back == HAS_ALL -> back = 0; goto hasAll
		:: back == GIVES_REST -> back = 0; goto givesRest
		:: back == RETURNS -> back = 0; break
		fi }
	od;

returns:
	atomic {
		assert(id >= WAITERS || empty(token[id]));
		finished++;
		if
		:: id == 0 -> firstDone = true
		:: else
		fi
	}
}

/* ------------------------------------------------------------- properties */

init {
	byte i, processes;
	atomic {
		do
		:: i < CORES -> word[i] = 1; mu[i] = NONE; i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < WAITERS -> run process(i); i++
		:: else -> break
		od;
		processes = WAITERS;
#ifdef CLOSE
		run process(CLOSER);
		processes++;
#endif
#ifdef LIFO
		word[0] = 0; users[0] = 1; run process(HOLDER);
		word[2] = 0; users[2] = 1; run process(LONG_HOLDER);
		processes = processes + 2;
#endif
		i = 0
	}
	/* All return: a run that stops before this is an invalid end state. */
	atomic {
		finished == processes;
		do
		:: i < CORES ->
			assert(word[i] == (shut[i] -> 1 + SLOW : 1));
			assert(queued[i] == 0 && mu[i] == NONE && users[i] == 0);
			i++
		:: else -> break
		od
	}
}
