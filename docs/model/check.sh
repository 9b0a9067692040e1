#!/bin/sh
# Checks the models next to this file with spin.
#
#	check.sh            every model in the sizes that are quick, about a minute
#	check.sh --mutants  breaks the protocol in every known way, and requires
#	                    that a property fails each time: models that cannot
#	                    fail prove nothing
#	check.sh --more     the models in larger sizes, and more mutants, some minutes
#
# Each line is one exhaustive search: the model, its switches, the number of
# states, the time it took. The exit status is non-zero if a property fails, if a
# search could not be completed, or if a mutant survives.
set -eu

models=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-gcc}

for tool in spin "$cc"; do
	if ! command -v "$tool" >/dev/null 2>&1; then
		echo "check.sh: $tool is missing; install it with: apt-get install $tool" >&2
		exit 2
	fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP PIPE
cd "$work"

failures=0

# build MODEL OPTIMIZE MEGABYTES SWITCH... builds ./pan from a model.
build() {
	model=$1 optimize=$2 megabytes=$3
	shift 3
	rm -f pan pan.* ./*.trail
	if ! spin "$@" -a "$models/$model.pml" >spin.log 2>&1; then
		cat spin.log
		return 1
	fi
	# Only safety is checked. An endless wait is an invalid end state, since no
	# model has a cycle: every run ends (see README.md).
	# shellcheck disable=SC2086 # optimize is several words
	"$cc" -w $optimize -DSAFETY -DNOFAIR "-DMEMLIM=$megabytes" -o pan pan.c
}

# search runs ./pan. The depth limit is far beyond what any search reached; the
# result shows it if a search reaches the limit.
search() { ./pan -n -m100000 >pan.log 2>&1 || true; }

states() { sed -n 's/^ *\([0-9][0-9]*\) states, stored.*/\1/p' pan.log | head -n 1; }
elapsed() { sed -n 's/^pan: elapsed time \([^ ]*\) seconds/\1/p' pan.log; }
found() { sed -n 's/^pan:[0-9]*: *//p' pan.log | head -n 1 | sed 's/ (at depth.*//'; }

# complete reports whether the search was complete and found nothing.
complete() {
	grep -q 'errors: 0$' pan.log &&
		! grep -q -i -e 'search not completed' -e 'max search depth too small' \
			-e 'MEMLIM' -e 'out of memory' -e 'hash table is full' pan.log
}

line() { printf '%-10s %-46s %9s states %6s s  %s\n' "$@"; }

# holds MODEL OPTIMIZE SWITCH... requires that all properties hold.
holds() {
	model=$1 optimize=$2
	shift 2
	if ! build "$model" "$optimize" "$megabytes_allowed" "$@"; then
		failures=$((failures + 1))
		line "$model" "$*" - - "FAILED to build"
		return
	fi
	search
	if complete; then
		line "$model" "$*" "$(states)" "$(elapsed)" ok
		return
	fi
	failures=$((failures + 1))
	line "$model" "$*" "$(states)" "$(elapsed)" "FAILED: $(found)"
	grep -e 'too small' -e 'MEMLIM bound' -e 'out of memory' pan.log || true
	if [ -f "$model.pml.trail" ]; then
		echo "The end of the run that shows it:"
		spin "$@" -p -k "$model.pml.trail" "$models/$model.pml" 2>&1 | tail -n 60
	fi
}

# caught MODEL SWITCH... requires that some property fails.
caught() {
	model=$1
	shift
	# The first error ends the search, so optimizing costs more than it gains.
	if ! build "$model" -O0 2048 "$@"; then
		failures=$((failures + 1))
		line "$model" "$*" - - "FAILED to build"
		return
	fi
	search
	if [ -f "$model.pml.trail" ] && [ -n "$(found)" ]; then
		line "$model" "$*" "$(states)" "$(elapsed)" "caught: $(found | cut -c 1-60)"
	else
		failures=$((failures + 1))
		line "$model" "$*" "$(states)" "$(elapsed)" "SURVIVED"
	fi
}

quick() {
	megabytes_allowed=2048
	holds handoff -O2 -DRESIZE
	holds handoff -O2 -DACQUIRERS=4
	holds handoff -O0 -DROUNDS=2
	holds handoff -O2 -DUNFAIR -DROUNDS=2
	holds handoff -O0 -DUNFAIR -DRESIZE -DACQUIRERS=2
	holds handoff -O0 -DLIFO -DROUNDS=2
	holds watcher -O2 -DOTHER
	holds watcher -O2 -DUNFAIR -DCLOSE
	holds watcher -O0 -DUNFAIR -DFOLLOW_FROM=2
	holds watcher -O0 -DUNFAIR -DWAITERS=2 -DROUNDS=2
	holds joint -O0 -DCLOSE -DCANCEL
	holds joint -O0 -DJOINTS=2 -DSINGLES=1 -DCANCEL
	holds joint -O0 -DJOINTS=2 -DSINGLES=2
	holds joint -O0 -DJOINTS=2 -DSINGLES=0 -DCANCEL -DLIFO
	holds host-slots -O0 -DHEAVY=1 -DTOGETHER
	holds host-slots -O0 -DRESIZES=2 -DCLAIMERS=2
	holds host-slots -O0 -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1
	holds host-slots -O0 -DKILL=0 -DRESIZES=1 -DCLAIMERS=2
	holds host-slots -O0 -DKILL=1 -DTOGETHER
	holds host-admit -O0
	holds host-queue -O0 -DHOSTS=1 -DASLEEP=1 -DCANCEL=1
	holds host-queue -O0 -DHOSTS=3 -DASLEEP=2 -DCANCEL=2
	holds host-queue -O0 -DHOSTS=3 -DASLEEP=1 -DARRIVE -DHINTS
	holds host-queue -O0 -DCALLERS=2 -DHOLDERS=0 -DARRIVE -DFINE -DHINTS
	holds host-queue -O0 -DHOSTS=3 -DASLEEP=3 -DCALLERS=4 -DHOLDERS=2 -DSLOTS=2 -DKEEP
	holds host-queue -O0 -DCALLERS=2 -DHOLDERS=0 -DARRIVE -DFINE -DPOLL=0 -DPASS
	holds host-queue -O0 -DHOSTS=3 -DASLEEP=3 -DPOLL=0 -DKILL=1
	holds host-queue -O0 -DCALLERS=2 -DHOLDERS=0 -DSLOTS=2 -DUNSETTLED -DARRIVE -DPOLL=0
	holds host-queue -O0 -DCALLERS=2 -DKILL=1 -DWATCH
}

more() {
	megabytes_allowed=8192
	holds handoff "-O2 -DCOLLAPSE" -DRESIZE -DROUNDS=2
	holds handoff "-O2 -DCOLLAPSE" -DUNFAIR -DRESIZE
	holds handoff "-O2 -DCOLLAPSE" -DUNFAIR -DACQUIRERS=4
	holds handoff "-O2 -DCOLLAPSE" -DLIFO -DRESIZE
	holds handoff "-O2 -DCOLLAPSE" -DLIFO -DACQUIRERS=4
	holds watcher "-O2 -DCOLLAPSE" -DCLOSE
	holds watcher "-O2 -DCOLLAPSE" -DROUNDS=2
	holds watcher "-O2 -DCOLLAPSE" -DUNFAIR -DROUNDS=2
	holds watcher "-O2 -DCOLLAPSE" -DWAITERS=4 -DFOLLOW_FROM=2
	holds watcher "-O2 -DCOLLAPSE" -DWAITERS=4 -DUNFAIR
	holds joint "-O2 -DCOLLAPSE" -DJOINTS=2 -DSINGLES=2 -DCANCEL
	holds joint "-O2 -DCOLLAPSE" -DJOINTS=2 -DSINGLES=1 -DCLOSE -DCANCEL
	holds joint "-O2 -DCOLLAPSE" -DJOINTS=2 -DSINGLES=1 -DLIFO
	holds host-slots "-O2 -DCOLLAPSE" -DRESIZES=2 -DHOLDERS=1 -DSCAN
	holds host-slots "-O2 -DCOLLAPSE" -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1 -DSCAN -DTOGETHER
	holds host-slots "-O2 -DCOLLAPSE" -DKILL=0 -DTOGETHER
	holds host-slots "-O2 -DCOLLAPSE" -DKILL=0 -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1 -DSCAN
	holds host-slots "-O2 -DCOLLAPSE" -DKILL=1 -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1 -DSCAN
	holds host-admit "-O2 -DCOLLAPSE" -DPROCESSES=4 -DBOUND=2
	holds host-queue "-O2 -DCOLLAPSE"
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DCANCEL=1
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=2 -DCANCEL=2 -DFINE
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=7 -DCANCEL=3 -DCALLERS=4
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=2 -DASLEEP=3 -DCANCEL=1 -DCALLERS=4
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DCALLERS=4 -DHOLDERS=2 -DSLOTS=2 -DKEEP -DHINTS -DFINE
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DPOLL=1 -DKILL=0
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DPOLL=1 -DKILL=1
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DPOLL=1 -DKILL=2
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=2 -DPOLL=0 -DPASS
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DPOLL=1 -DPASS
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DPOLL=0 -DPASS -DKILL=0
	holds host-queue -O0 -DCALLERS=2 -DPOLL=1 -DKILL=1
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DKILL=2 -DWATCH
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=3 -DCANCEL=1 -DKILL=2 -DWATCH
	holds host-queue "-O2 -DCOLLAPSE" -DHOSTS=3 -DASLEEP=1 -DARRIVE -DPOLL=0 -DKILL=0
	caught host-slots -DMUTANT_COUNT_THEN_LOCK -DRESIZES=1 -DHOLDERS=1 -DCLAIMERS=2
	caught host-slots -DMUTANT_COUNT_WITHOUT_MARKS -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1 -DTOGETHER
	caught host-slots -DMUTANT_NOT_MARKED -DSLOTS=1 -DTOGETHER
	caught host-slots -DMUTANT_SETTLE_BLINDLY -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1
	caught host-queue -DMUTANT_READ_WORD_LATE -DCALLERS=2
	caught host-queue -DMUTANT_SERVED_WITHOUT_WAKE -DHOSTS=3 -DASLEEP=3 -DCALLERS=4 -DHOLDERS=2 -DSLOTS=2 -DKEEP
	caught host-queue -DMUTANT_SKIP_BUSY -DHOSTS=3 -DASLEEP=1 -DARRIVE
	caught host-queue -DMUTANT_NOT_WOKEN -DHOSTS=1 -DASLEEP=1 -DCANCEL=1
	caught host-queue -DMUTANT_ATTEMPT_OUT_OF_TURN -DHOSTS=3 -DASLEEP=1
	# Why package host polls: without polling, these are stuck.
	caught host-queue -DHOSTS=3 -DASLEEP=3 -DKILL=0
	caught host-queue -DHOSTS=3 -DASLEEP=3 -DPASS
	caught host-queue -DCALLERS=2 -DHOLDERS=0 -DSLOTS=2 -DUNSETTLED -DARRIVE
}

mutants() {
	caught handoff -DMUTANT_TAKE_WITHOUT_CAS
	caught handoff -DMUTANT_RAISE_BLINDLY
	caught handoff -DMUTANT_LOOK_THEN_ADD
	caught handoff -DMUTANT_LEAVE_UNSETTLED
	caught handoff -DMUTANT_LEAVE_AT_ONCE
	caught handoff -DMUTANT_KEEP_RACED_GRANT
	caught handoff -DMUTANT_SERVE_PAST_HEAD -DRESIZE
	caught handoff -DMUTANT_SERVE_IN_DEBT -DRESIZE
	caught handoff -DMUTANT_RAISE_LATE -DRESIZE
	caught handoff -DMUTANT_STAYS_COMPETITOR -DUNFAIR
	caught handoff -DMUTANT_COMPETE_UNSETTLED -DUNFAIR
	caught watcher -DMUTANT_LEAVE_UNPROMOTED
	caught watcher -DMUTANT_PROMOTE_AFTER_UNLOCK
	caught watcher -DMUTANT_IGNORE_WATCH_DONE
	caught watcher -DMUTANT_NOT_MARKED
	caught watcher -DMUTANT_NOT_DRAINED
	caught watcher -DMUTANT_ANY_CANCELS_FOLLOWERS -DOTHER
	caught watcher -DMUTANT_CANCEL_KEEPS_COMPETITOR -DUNFAIR
	caught watcher -DROOM=2 -DUNFAIR -DCLOSE
	caught joint -DMUTANT_NO_FIRST_ATTEMPT
	caught joint -DMUTANT_LOOK_THEN_RAISE
	caught joint -DMUTANT_KEEP_HALF
	caught joint -DMUTANT_ATTEMPT_OUT_OF_TURN -DJOINTS=2
	caught joint -DMUTANT_WITHDRAW_UNSETTLED -DCANCEL
	caught joint -DMUTANT_DECIDED_TWICE -DCLOSE -DCANCEL
	caught joint -DMUTANT_ONE_JOINT -DJOINTS=2 -DSINGLES=0 -DLIFO
	caught host-slots -DMUTANT_NOT_CHECKED_AGAIN -DRESIZES=1 -DCLAIMERS=2
	caught host-slots -DMUTANT_NOT_COUNTED -DRESIZES=1 -DSLOTS=3 -DHOLDERS=1 -DCLAIMERS=2
	caught host-slots -DMUTANT_UNMARK_FIRST -DSLOTS=1 -DTOGETHER
	caught host-slots -DMUTANT_CLEAR_HINT_FIRST -DSLOTS=1 -DCLAIMERS=2
	caught host-slots -DMUTANT_FREE_BLINDLY -DSLOTS=1 -DKILL=1 -DTOGETHER
	caught host-admit -DMUTANT_COUNT_FIRST
	caught host-admit -DMUTANT_COUNT_ALL
	caught host-admit -DMUTANT_WAIT_FOR_NONE
	caught host-queue -DMUTANT_PUBLISH_LATE -DCALLERS=2
	caught host-queue -DMUTANT_WAKE_THEN_UNLOCK -DCALLERS=2
	caught host-queue -DMUTANT_WAKE_WITHOUT_WORD -DCALLERS=2
	caught host-queue -DMUTANT_LEAVE_WITHOUT_WAKE -DHOSTS=3 -DASLEEP=3 -DCANCEL=1
	caught host-queue -DMUTANT_LOWER_UNCOUNTED -DHOSTS=3 -DASLEEP=2 -DCANCEL=2
	caught host-queue -DMUTANT_HAND_OFF_BLINDLY -DCALLERS=4 -DASLEEP=3
	caught host-queue -DMUTANT_HAND_OFF_WITHOUT_WAKE -DHOSTS=3 -DASLEEP=3 -DCALLERS=4 -DHOLDERS=2 -DSLOTS=2 -DKEEP
	caught host-queue -DMUTANT_KEEP_KILLED -DHOSTS=3 -DASLEEP=3 -DPOLL=0 -DKILL=0
	caught host-queue -DMUTANT_WATCH_THEN_SLEEP -DCALLERS=2 -DKILL=1 -DWATCH
	caught host-queue -DMUTANT_WAKE_WITHOUT_WORD -DCALLERS=2 -DKILL=1 -DWATCH
}

case ${1-} in
'') quick ;;
--mutants) mutants ;;
--more) more ;;
*)
	sed -n '2,/^set /p' "$models/check.sh" | sed -n 's/^# \{0,1\}//p'
	exit 2
	;;
esac

if [ "$failures" -gt 0 ]; then
	echo "check.sh: $failures failed" >&2
	exit 1
fi
