/*
 * The slots of package host: owners.go, slots.go and lifecycle.go. The number of held permits
 * never exceeds the capacity, whatever process is killed and however it is resized.
 *
 * Claimers in two operating-system processes, "hosts" as in host-queue.pml, claim
 * slots, hold them and release them. A resizer changes the capacity. A host may be
 * killed at any moment. That leaves the shared memory as it is: the slots that the host
 * owns are free when a scan has found that their owner has ended.
 *
 * One step of the model is one atomic operation of the code, with the query whether an
 * owner lives: that an owner has ended remains true. Scans go upwards or downwards. A
 * host may take a slot that it owns, as it may lock one twice if it has no place: its
 * marks prevent that.
 *
 * Switches (spin -D...), see check.sh for those that are run:
 *   CLAIMERS=n    default 3, in host 0 and 1 by turns
 *   TOGETHER      all but the last are in host 0
 *   HEAVY=n       the first n claim two slots instead of one
 *   SLOTS=n       the initial capacity, default 2
 *   ROUNDS=n      claims of each claimer, default 1
 *   HOLDERS=n     the last n hold slots from the start and claim none
 *   SCAN          slots are found by the locks alone, not by the bitmap first
 *   RESIZES=n     changes of the capacity, default 0; each one to any other number
 *                 from 1 to SLOTS
 *   KILL=n        host n is killed
 *   MUTANT_...    a protocol broken on purpose: an error must be found
 */

#ifndef CLAIMERS
#define CLAIMERS 3
#endif
#ifndef HEAVY
#define HEAVY 0
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef ROUNDS
#define ROUNDS 1
#endif
#ifndef HOLDERS
#define HOLDERS 0
#endif
#ifndef RESIZES
#define RESIZES 0
#endif

#ifdef TOGETHER
#define HOST(c)   ((c) < CLAIMERS - 1 -> 0 : 1)
#else
#define HOST(c)   ((c) & 1)
#endif
#define WEIGHT(c) ((c) < HEAVY -> 2 : 1)
#define HOLDS(c)  ((c) >= CLAIMERS - HOLDERS)
#define BIT(s)    (1 << (s))
#define COUNT(m)  (((m) & 1) + (((m) >> 1) & 1) + (((m) >> 2) & 1))
#define SCANS     2     /* 8 in the code */
#define NONE      255

/* The file. The config word is the first three together. */
byte capacity = SLOTS;
bool unsettled = false;
byte changes = 0;
byte bits = 0;                  /* hints: slots that are held or being taken */

byte lock[SLOTS];               /* the owner: 1 + a host, or 0 */
byte marks[2];                  /* file.mine: slots that a host holds or is taking */

/* Not in the code, only for the properties. */
byte permits[CLAIMERS];         /* the slots of permits */
byte finished = 0;
#if CLAIMERS == 2
#define TAKEN (permits[0] | permits[1])
#elif CLAIMERS == 3
#define TAKEN (permits[0] | permits[1] | permits[2])
#else
#define TAKEN (permits[0] | permits[1] | permits[2] | permits[3])
#endif
#ifdef KILL
bool killed = false;
#endif

inline unlockSlots() {
	do
	:: atomic { got == 0 -> s = 0; break }
	:: d_step { got != 0 && !(got & BIT(s)) -> s++ }
	:: got & BIT(s) ->
#ifdef MUTANT_UNMARK_FIRST
	   marks[p] = marks[p] & ~BIT(s);
#endif
#ifdef MUTANT_CLEAR_HINT_FIRST
	   bits = bits & ~BIT(s);
#endif
	   atomic {
		/* Whatever the host holds there, if anything. */
		lock[s] = (lock[s] == p + 1 -> 0 : lock[s])             /* unlock */
	   };
#ifndef MUTANT_CLEAR_HINT_FIRST
	   bits = bits & ~BIT(s);                                       /* and */
#endif
	   atomic {
#ifndef MUTANT_UNMARK_FIRST
		marks[p] = marks[p] & ~BIT(s);                          /* and */
#endif
		got = got & ~BIT(s)
	   }
	od
}

/* The owners of one host do not distinguish its permits. */
#define LOCKABLE(s) (lock[s] == 0 || lock[s] == p + 1)
#define FOREIGN(s)  (lock[s] != 0 && lock[s] != p + 1)
#ifdef KILL
#define ENDED(s)    (killed && lock[s] == KILL + 1)
#else
#define ENDED(s)    false
#endif

/* Frees the slot of an ended owner, unless another scan has done so. */
inline freeEnded() {
#ifdef MUTANT_FREE_BLINDLY
	lock[s] = 0
#else
	lock[s] = (ENDED(s) -> 0 : lock[s])                             /* CAS */
#endif
}

/* heldSlots sets held. */
inline heldSlots() {
#ifdef MUTANT_COUNT_WITHOUT_MARKS
	held = 0;
#else
	held = marks[p];                                                /* load */
#endif
	if
	:: s = 0;
	   do
	   :: d_step { s < SLOTS && !ENDED(s) -> held = held | (FOREIGN(s) -> BIT(s) : 0); s++ }
	   :: s < SLOTS && ENDED(s) -> atomic { freeEnded(); s++ }
	   :: atomic { s == SLOTS -> s = 0; break }
	   od
	:: s = SLOTS;
	   do
	   :: d_step { s > 0 && !ENDED(s - 1) -> s--; held = held | (FOREIGN(s) -> BIT(s) : 0) }
	   :: d_step { s > 0 && ENDED(s - 1) -> s-- }; atomic { freeEnded() }
	   :: s == 0 -> break
	   od
	fi
}

/* MARKED reports whether a slot is marked within the host. */
#ifdef MUTANT_NOT_MARKED
#define MARKED(s) false
#else
#define MARKED(s) (marks[p] & BIT(s))
#endif

inline lockHinted() {
	d_step { held = bits; s = 0 };                                  /* load */
	held = held | marks[p];                                         /* load */
	do
	:: atomic { s >= mayUse -> s = 0; held = 0; break }
	:: d_step { s < mayUse && (held & BIT(s)) -> s++ }
	:: atomic { s < mayUse && !(held & BIT(s)) ->
		if
		:: MARKED(s) -> held = held | BIT(s)                    /* or */
		:: else -> marks[p] = marks[p] | BIT(s)                 /* or */
		fi };
	   if
	   :: held & BIT(s)
	   :: !(held & BIT(s)) ->
		atomic {
			held = held | (bits & BIT(s));
			bits = bits | BIT(s)                            /* or */
		};
		if
		:: held & BIT(s)
		:: !(held & BIT(s)) ->
			atomic {
				if
				:: LOCKABLE(s) ->                       /* lock */
					lock[s] = p + 1;
					got = BIT(s);
					s = 0;
					held = 0;
					break
				:: else -> held = held | BIT(s)
				fi
			}
		fi;
		marks[p] = marks[p] & ~BIT(s)                           /* and */
	   fi
	od
}

inline lockScanned() {
	do
	:: atomic { scans == SCANS || COUNT(got) == n -> scans = 0; break }
	:: scans < SCANS && COUNT(got) < n ->
	   heldSlots();
	   bits = bits & held;                                          /* and */
	   /* freeRuns and lockRuns, slot by slot */
	   do
	   :: atomic { s >= mayUse || COUNT(got) == n -> s = 0; held = 0; break }
	   :: d_step { s < mayUse && COUNT(got) < n && (held & BIT(s)) -> s++ }
	   :: atomic { s < mayUse && COUNT(got) < n && !(held & BIT(s)) ->
		if
		:: COUNT(~held & (BIT(mayUse) - 1) & ~((1 << s) - 1)) + COUNT(got) < n ->
			s = 0;
			held = 0;
			scans = SCANS - 1;      /* too few are free */
			break
		:: else
		fi;
		if
		:: MARKED(s) -> s = 0; held = 0; break                  /* or */
		:: else -> marks[p] = marks[p] | BIT(s)                 /* or */
		fi };
	      atomic {
		if
		:: LOCKABLE(s) -> lock[s] = p + 1                       /* lock */
		:: else -> held = NONE
		fi };
	      if
	      :: atomic { held == NONE ->
		marks[p] = marks[p] & ~BIT(s); s = 0; held = 0; break } /* and */
	      :: atomic { held != NONE ->
		bits = bits | BIT(s); got = got | BIT(s); s++ }         /* or */
	      fi
	   od;
	   if
	   :: COUNT(got) == n
	   :: COUNT(got) < n ->
		unlockSlots();
		scans++
	   fi
	od
}

/* overCapacity sets over. */
inline overCapacity() {
	if
	:: !wasUnsettled
	:: wasUnsettled ->
	   heldSlots();
	   atomic {
		over = COUNT(held) > mayUse;
#ifdef MUTANT_NOT_COUNTED
		over = false;
#endif
#ifdef MUTANT_SETTLE_BLINDLY
		held = (over -> 255 : 0);
#else
		held = (over -> 255 : held >> mayUse)
#endif
	   };
	   if
	   :: held != 0
	   :: atomic { held == 0 ->
		if
		:: changes == seen -> changes++; unsettled = false      /* CAS */
		:: else
		fi }
	   fi;
	   held = 0
	fi
}

inline claim() {
	do
	:: atomic {
		mayUse = capacity; wasUnsettled = unsettled; seen = changes; /* load */
		if
		:: n > mayUse -> mayUse = 0; wasUnsettled = false; seen = 0; break
		:: else
		fi
	   };
#ifdef MUTANT_COUNT_THEN_LOCK
	   overCapacity();
#endif
	   if
#ifdef SCAN
	   :: true
#else
	   :: n == 1 -> lockHinted()
	   :: n > 1
#endif
	   fi;
	   if
	   :: got == 0 -> lockScanned()
	   :: got != 0
	   fi;
	   if
	   :: atomic { got == 0 -> mayUse = 0; wasUnsettled = false; seen = 0; break }
	   :: got != 0
	   fi;
#ifndef MUTANT_COUNT_THEN_LOCK
	   overCapacity();
#endif
	   atomic {
		if
#ifdef MUTANT_NOT_CHECKED_AGAIN
		:: !over ->
#else
		:: changes == seen && !over ->                          /* load */
#endif
			assert((TAKEN & got) == 0);             /* no other permit has them */
			assert(COUNT(TAKEN) + n <= capacity);   /* at most the capacity is held */
			permits[id] = got;
			mayUse = 0;
			wasUnsettled = false;
			seen = 0;
			break
		:: else
		fi
	   };
	   unlockSlots();
	   if
	   :: atomic { over -> over = false; mayUse = 0; wasUnsettled = false; seen = 0; break }
	   :: !over
	   fi
	od
}

inline claims(id, p) {
	if
	:: atomic { HOLDS(id) -> rounds = 0; got = permits[id]; goto holds }
	:: !HOLDS(id)
	fi;
	do
	:: rounds == 0 -> break
	:: rounds > 0 ->
	   claim();
	   rounds--;
	   if
	   :: got == 0
	   :: got != 0 ->
holds:		atomic {
			do
			:: s < SLOTS -> assert(!(got & BIT(s)) || lock[s] == p + 1); s++ /* still the owner */
			:: else -> s = 0; break
			od;
			permits[id] = 0
		};
		unlockSlots()
	   fi
	od;
	finished++
}

#define LOCALS(id) \
	byte n = WEIGHT(id); \
	byte rounds = ROUNDS; \
	byte p = HOST(id); \
	byte got, s, held, mayUse, seen, scans; \
	bool wasUnsettled, over

proctype claimer(byte id) {
	LOCALS(id);
	claims(id, p)
}

#ifdef KILL
/* The same for a host that is killed. */
proctype killable(byte id) {
	LOCALS(id);
	{ claims(id, p) } unless { killed }
}

/* What is in the file remains of the killed host. */
proctype killer() {
	byte q;
	atomic {
		killed = true;
		do
		:: q < CLAIMERS -> permits[q] = (HOST(q) == KILL -> 0 : permits[q]); q++
		:: else -> break
		od;
		q = 0
	}
}
#define KILLABLE(p) ((p) == KILL)
#else
#define KILLABLE(p) false
#define killable(id) claimer(id)
#endif

/* resize. The new capacity differs, so that every change counts. */
proctype resizer() {
	byte left = RESIZES;
	byte to;
	do
	:: left == 0 -> break
	:: left > 0 -> atomic {
		if
		:: capacity != 1 -> to = 1
		:: capacity != 2 && SLOTS >= 2 -> to = 2
		:: capacity != 3 && SLOTS >= 3 -> to = 3
		fi;
		capacity = to;
		unsettled = true;
		changes++;                                              /* CAS */
		to = 0;
		left-- }
	od
}

init {
	byte i;
	atomic {
		do
		:: i < HOLDERS ->
			lock[SLOTS - 1 - i] = HOST(CLAIMERS - 1 - i) + 1;
			bits = bits | BIT(SLOTS - 1 - i);
			marks[HOST(CLAIMERS - 1 - i)] = marks[HOST(CLAIMERS - 1 - i)] | BIT(SLOTS - 1 - i);
			permits[CLAIMERS - 1 - i] = BIT(SLOTS - 1 - i);
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < CLAIMERS && !KILLABLE(HOST(i)) -> run claimer(i); i++
		:: i < CLAIMERS && KILLABLE(HOST(i)) -> run killable(i); i++
		:: else -> break
		od;
		i = 0;
		run resizer();
#ifdef KILL
		run killer()
#endif
	}
#ifndef KILL
	/* All return and leave nothing. Above all, no hint of a free slot remains,
	 * which would hide the slot from the next claimer. */
	atomic {
		finished == CLAIMERS;
		assert(bits == 0 && marks[0] == 0 && marks[1] == 0);
		assert(lock[0] == 0 && lock[SLOTS-1] == 0)
	}
#endif
}
