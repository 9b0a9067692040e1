-- Slots are the numbers of a lease on a numbered semaphore, as text such as 0-3,7. The
-- numbers of all its leases are a bit string (semaphore.slots_in_use): bit n is 1 if
-- slot n is in use.

-- slot_range returns the text of a range of slots.
CREATE OR REPLACE FUNCTION slot_range(low integer, high integer) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT CASE WHEN low = high THEN low::text ELSE low::text || '-' || high::text END $$;

-- take_slots returns the lowest free slots, as many as the weight, and marks them as in
-- use.
CREATE OR REPLACE FUNCTION take_slots(INOUT in_use bit varying, weight bigint, OUT slots text) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  low integer; n integer;
BEGIN
  WHILE weight > 0 LOOP
    low := position(B'0' IN in_use) - 1;
    IF low < 0 THEN
      RAISE EXCEPTION 'sema: % permits are free, and no slots', weight USING ERRCODE = 'data_corrupted';
    END IF;
    n := position(B'1' IN substring(in_use FROM low + 1)) - 1; -- length of the run of free slots; -1: to the end
    IF n < 0 THEN
      n := length(in_use) - low;
    END IF;
    n := least(n, weight);
    in_use := overlay(in_use PLACING repeat('1', n)::bit varying FROM low + 1);
    slots := concat_ws(',', slots, slot_range(low, low + n - 1));
    weight := weight - n;
  END LOOP;
END
$$;

-- free_slots marks slots as free.
CREATE OR REPLACE FUNCTION free_slots(INOUT in_use bit varying, slots text) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  part text; low integer; n integer;
BEGIN
  IF slots <> '' THEN
    FOREACH part IN ARRAY string_to_array(slots, ',') LOOP
      low := split_part(part, '-', 1);
      n := coalesce(nullif(split_part(part, '-', 2), '')::integer, low) - low + 1;
      in_use := overlay(in_use PLACING repeat('0', n)::bit varying FROM low + 1);
    END LOOP;
  END IF;
END
$$;

-- cut_slots returns the highest slots, as many as the weight, and the rest.
CREATE OR REPLACE FUNCTION cut_slots(slots text, weight bigint, OUT kept text, OUT highest text) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  parts text[] := string_to_array(slots, ',');
  i integer := cardinality(parts); low integer; high integer; n integer;
BEGIN
  WHILE weight > 0 AND i > 0 LOOP
    low := split_part(parts[i], '-', 1);
    high := coalesce(nullif(split_part(parts[i], '-', 2), '')::integer, low);
    n := least(high - low + 1, weight);
    highest := concat_ws(',', slot_range(high - n + 1, high), highest);
    weight := weight - n;
    IF high - n < low THEN
      i := i - 1;
    ELSE
      parts[i] := slot_range(low, high - n);
    END IF;
  END LOOP;
  kept := array_to_string(parts[1:i], ',');
END
$$;
