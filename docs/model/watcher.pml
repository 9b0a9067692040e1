/*
 * One waiter watches the context that several share: queue.go, and park, leave
 * and compete of park.go.
 *
 * Waiters of one context, and with OTHER one of another, acquire one permit
 * each. The contexts end, at any moment. One waiter, any of them, may also
 * have a wait limit, which passes at any moment or never. A waiter that is
 * granted the permit keeps it for good or gives it to the next. So no waiter is
 * certain to be served, and a follower that is not notified of the end of its
 * context sleeps for ever: an invalid end state.
 *
 * The word is left to handoff.pml: here a give always locks, as if a flag were
 * up. One step is a critical section up to its first send, or on to the next,
 * or one send or receive outside. Sends with the mutex held end a step, since
 * the receiver may run before the mutex is unlocked.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   WAITERS=n      default 3
 *   OTHER          the last of them has another context
 *   ROUNDS=n       acquires of each, with the same waiter, default 1
 *   FOLLOW_FROM=n  queue length from which waiters follow, default 1
 *   CLOSE          the semaphore is closed, at any moment
 *   UNFAIR         the head is woken to compete, arrivals may be faster;
 *                  whether it has waited too long is nondeterministic
 *   ROOM=n         capacity of a token channel, default 3
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
#define ROOM 3          /* maxTokens */
#endif

#define NONE 255

/* The processes: waiters first, then these. */
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
byte mu = NONE;
byte free = 0;
byte queue[WAITERS];    /* head first */
byte queued = 0;
byte watcher = NONE;
byte followers = 0;
byte competitor = NONE;
bool starving = false;
bool shut = false;
bool follows[WAITERS];
bool promoted[WAITERS];
byte status[WAITERS];

chan token[WAITERS] = [ROOM] of { byte };

/* Not in the code, only for the properties. */
byte limited;           /* the waiter with a wait limit, or NONE */
byte arrived = 0;
byte owed[WAITERS];     /* statuses decided but not yet received */
byte coming = 1;        /* permits whose give has not begun */
byte held = 0;
byte inFlight = 0;
byte finished = 0;

#define FOLLOWER(w) (follows[w] && !promoted[w])

/* LOCK is the first part of an atomic step, with the first action under the mutex,
 * and unlock the last part. No other process can distinguish this from separate
 * steps. */
#define LOCK mu == NONE -> mu = _pid
#define MINE assert(mu == _pid)

/* --------------------------------------------------- the queue, under mu */

/* find sets at to the place of w, or to queued if w is not queued. The code uses
 * the status of the waiter instead. */
inline find(w) {
	at = 0;
	do
	:: at < queued && queue[at] != w -> at++
	:: else -> break
	od
}

/* unlock checks the invariants and unlocks the mutex. */
inline unlock() {
	MINE;
	at = 0;
	w = 0;
	do
	:: at < queued ->
		if
		:: FOLLOWER(queue[at]) ->
			/* a waiter watches for it, and the right context */
			assert(watcher != NONE && CONTEXT(queue[at]) == CONTEXT(watcher));
			w++
		:: else
		fi;
		at++
	:: else -> break
	od;
	assert(w == followers);
	w = 0;
	if
	:: watcher != NONE -> find(watcher); assert(at < queued && !FOLLOWER(watcher))
	:: else
	fi;
	if
	:: competitor != NONE -> find(competitor); assert(at < queued)
	:: else -> assert(queued == 0 || free == 0)     /* no wake-up lost */
	fi;
	at = 0;
	mu = NONE
}

inline enqueue(w) {
	MINE;
	queue[queued] = w;
	if
	:: watcher == NONE -> watcher = w
	:: watcher != NONE && CONTEXT(watcher) == CONTEXT(w) && queued >= FOLLOW_FROM ->
		follows[w] = true;
		followers++
	:: else
	fi;
	queued++
}

/* sendToken sends a token. It must not block, above all not with mu held. */
inline sendToken(w, v) {
	assert(nfull(token[w]));
	token[w] ! v
}

/* promoteFollower makes the last follower in the queue watch. */
inline promoteFollower() {
	watcher = NONE;
	if
	:: followers > 0 ->
		at = queued - 1;
		do
		:: !FOLLOWER(queue[at]) -> at--
		:: else -> break
		od;
		watcher = queue[at];
		at = 0;
		followers--;
#ifndef MUTANT_NOT_MARKED
		promoted[watcher] = true;
#endif
#ifdef MUTANT_PROMOTE_AFTER_UNLOCK
		promotee = watcher
#else
		sendToken(watcher, WATCH_DONE)
#endif
	:: else
	fi
}

inline remove(w) {
	MINE;
	find(w);
	assert(at < queued);
	do
	:: at + 1 < queued -> queue[at] = queue[at+1]; at++
	:: else -> break
	od;
	queued--;
	queue[queued] = 0;
	at = 0;
	if
	:: FOLLOWER(w) -> followers--
	:: !FOLLOWER(w) && watcher == w ->
#ifdef MUTANT_LEAVE_UNPROMOTED
		watcher = NONE
#else
		promoteFollower()
#endif
	:: else
	fi
}

inline dequeue(w) {
	remove(w);
	if
	:: competitor == w -> competitor = NONE
	:: else
	fi
}

/* decide: w, out of the queue, will receive v after unlocking. */
inline decide(w, v) {
	assert(owed[w] == 0);           /* no waiter gets two statuses */
	status[w] = v;
	owed[w] = 1;
	out[outs] = w;
	outs++
}

/* cancelFollowers removes the followers from the queue; their context has ended. */
inline cancelFollowers() {
	do
	:: at < queued && FOLLOWER(queue[at]) ->
		w = queue[at];
#ifdef MUTANT_CANCEL_KEEPS_COMPETITOR
		remove(w);
#else
		dequeue(w);
#endif
		decide(w, CANCELLED);
		at = 0
	:: at < queued && !FOLLOWER(queue[at]) -> at++
	:: at == queued -> break
	od;
	at = 0;
	w = 0
}

/* ---------------------------------------------------------------- settle */

inline finishHead(v) {
	w = queue[0];
	dequeue(w);
	decide(w, v);
	w = 0
}

#ifdef UNFAIR
/* serveUnfairLocked. A head that is overdue is granted directly. */
#define IDLE    (shut || queued == 0)
#define STOPS   (IDLE || competitor != NONE && !starving || free == 0)

inline serveAndUnlock() {
	do
	:: atomic { STOPS ->
		if
		:: !shut && queued == 0 -> starving = false
		:: else
		fi;
		unlock();
		break }
	:: atomic { !IDLE && starving && free > 0 ->
		free--;
		inFlight++;
		finishHead(GRANTED);
		if
		:: starving = false
		:: queued > 0           /* the next is overdue too */
		fi }
	:: d_step { !IDLE && !starving && competitor == NONE && free > 0 ->
		competitor = queue[0];
		sendToken(competitor, COMPETE_NOW) }
	:: d_step { !IDLE && !starving && competitor == NONE && free == 0 ->
		starving = true }
	od
}
#else
inline serveAndUnlock() {
	do
	:: atomic { shut || queued == 0 || free == 0 -> unlock(); break }
	:: d_step { !shut && queued > 0 && free > 0 ->
		free--;
		inFlight++;
		finishHead(GRANTED) }
	od
}
#endif

/* deliver sends one status. */
inline deliver() {
	sendToken(out[0], status[out[0]]);
	at = 0;
	do
	:: at + 1 < outs -> out[at] = out[at+1]; at++
	:: else -> break
	od;
	outs--;
	out[outs] = 0;
	at = 0
}

/* recycle: a waiter that may be reused is not referenced and receives no more tokens. */
inline recycle(w) {
	assert(empty(token[w]) && owed[w] == 0);
	assert(watcher != w && competitor != w);
	follows[w] = false;
	promoted[w] = false;
	status[w] = 0
}

/* ------------------------------------------------------------- processes */

/* The word decides which arrivals may take at once, see handoff.pml. */
#ifdef UNFAIR
#define MAY_TAKE (free > 0 && !starving && !shut)
#else
#define MAY_TAKE (free > 0 && queued == 0 && !shut)
#endif

/* Waiters are numbered as they arrive: they are alike, so other orders would
 * only repeat the search. The one with another context is not. */
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

/* Every path that settles does so at settles, and continues as back selects. */
#define GAVE     1
#define LEFT     2
#define COMPETED 3

proctype process(byte id) {
	byte rounds = ROUNDS;
	byte v, reason, back;
	bool watches, won;
	byte at, w, outs, out[WAITERS];
#ifdef MUTANT_PROMOTE_AFTER_UNLOCK
	byte promotee = NONE;
#endif

	if
	:: atomic { id == GIVER -> LOCK; coming--; free++; back = GAVE; goto settles }
	:: atomic { id == CLOSER -> LOCK; shut = true };
	   /* rejectAllLocked: all queued waiters, including those just made watchers */
	   do
	   :: d_step { queued > 0 -> finishHead(CLOSED) }
	   :: atomic { queued == 0 -> back = GAVE; goto settles }
	   od
	:: id < WAITERS && MAY_ARRIVE(id)
	fi;

acquires:
	/* enter. The context may have ended just after it was checked. */
	atomic {
		if
		:: ended[CONTEXT(id)] -> arrives(id); goto returns
		:: MAY_TAKE -> arrives(id); free--; held++; goto holds
		:: LOCK;
		   arrives(id);
		   if
		   :: shut -> mu = NONE; goto returns
		   :: MAY_TAKE -> free--; held++; mu = NONE; goto holds
		   :: else -> enqueue(id); unlock()
		   fi
		fi;
		watches = !follows[id]
	};

parked:
	do
	:: atomic {
		token[id] ? v;
		if
#ifdef MUTANT_IGNORE_WATCH_DONE
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
	:: atomic { watches && ended[CONTEXT(id)] -> reason = CANCELLED; break }
	:: atomic { limited == id -> reason = TIMED_OUT; break }
	od;

	/* leave */
	atomic {
		LOCK;
		find(id);
		if
		:: at == queued -> at = 0; mu = NONE; goto outrun
		:: else -> at = 0
		fi;
		if
#ifdef MUTANT_ANY_CANCELS_FOLLOWERS
		:: reason == CANCELLED -> cancelFollowers()
#else
		:: reason == CANCELLED && watcher == id -> cancelFollowers()
#endif
		:: else
		fi;
		dequeue(id);
		back = LEFT;
		goto settles
	};

outrun:
	/* finalToken: a status was faster and is certain to arrive. */
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
		:: v == GRANTED && reason == TIMED_OUT -> inFlight--; held++; goto holds
		:: else -> inFlight--; held++; goto gives
		fi
	};

competes:
	atomic {
		LOCK;
		find(id);
		if
		:: at == queued -> at = 0; mu = NONE; goto parked
		:: else -> at = 0
		fi;
		competitor = NONE;
		if
		:: free > 0 -> free--; held++; dequeue(id); won = true
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
#ifdef MUTANT_PROMOTE_AFTER_UNLOCK
	if
	:: d_step { promotee != NONE -> sendToken(promotee, WATCH_DONE); promotee = NONE }
	:: promotee == NONE
	fi;
#endif
	/* One status per step, after the mutex was unlocked. */
	do
	:: d_step { outs > 0 -> deliver() }
	:: atomic { outs == 0 ->
		if
		:: back == GAVE -> back = 0; goto returns
		:: back == COMPETED && !won -> back = 0; goto parked
		:: back == LEFT || back == COMPETED && won -> break
		fi }
	od;
	/* Out of the queue by itself, not by a status. What else could be in its
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
		reason = 0;
		watches = false;
		rounds--;
		if
		:: rounds > 0 && id < WAITERS -> goto acquires
		:: else -> finished++
		fi
	}
}

/* The contexts end at any moment, but certainly. */
proctype ender(byte c) {
	atomic { ended[c] = true; finished++ }
}

/* ------------------------------------------------------------ properties */

#define CONSERVED (coming + free + held + inFlight == 1)

/* check stays at its first step while all invariants hold. */
active proctype check() {
end:
	atomic { !CONSERVED -> assert(CONSERVED) }
}

init {
	byte i, processes;
	atomic {
		limited = NONE;
		do
		:: i < WAITERS -> run process(i); i++
		:: i < WAITERS && limited == NONE -> limited = i
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
	/* All return: a run that stops before this is an invalid end state. */
	atomic {
		finished == processes;
		assert(queued == 0 && watcher == NONE);
		assert(followers == 0 && competitor == NONE && (shut || !starving));
		assert(inFlight == 0 && coming == 0 && mu == NONE);
		do
		:: i < WAITERS -> assert(empty(token[i]) && owed[i] == 0); i++
		:: else -> break
		od
	}
}
