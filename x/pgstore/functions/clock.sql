-- now_micros returns the time on the server's clock. It is called after the row of the
-- semaphore is locked: now() would be the time at which the transaction began to wait.
CREATE OR REPLACE FUNCTION now_micros() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

-- effective returns how much may be in use: the target, or what a rise to it has
-- reached.
CREATE OR REPLACE FUNCTION effective(capacity bigint, ramp bigint, ramp_from bigint, ramp_at bigint, last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE
  WHEN ramp = 0 OR ramp_from >= capacity THEN capacity
  WHEN greatest(last - ramp_at, 0) / 1000000 > (capacity - ramp_from) / ramp THEN capacity
  ELSE least(capacity, ramp_from
    + greatest(last - ramp_at, 0) / 1000000 * ramp
    + greatest(last - ramp_at, 0) % 1000000 * ramp / 1000000)
END $$;

-- skip_numbers returns a number that is higher than any that can have been issued after
-- last, by a commit that was lost.
CREATE OR REPLACE FUNCTION skip_numbers(last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT last + 1000000000 $$;

-- note_highest returns last_seq, or what a client has seen if that is higher and at
-- most MaxLead ahead of the clock.
CREATE OR REPLACE FUNCTION note_highest(last_seq bigint, highest bigint, last bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN highest > last_seq AND highest <= greatest(last, 0) + 100000000000000 THEN highest ELSE last_seq END $$;
