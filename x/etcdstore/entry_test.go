package etcdstore

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/sema-go/sema/fleet/protocol"
	"github.com/sema-go/sema/internal/sessiontest"
	"github.com/sema-go/sema/internal/storetest/etcdtest"
)

// fill sets every field to a value that differs from all others.
func fill(v reflect.Value, next *uint64) {
	*next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), next)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 3, 3))
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[protocol.Slots]() {
			v.SetString(fmt.Sprintf("0-%d", *next))
			return
		}
		v.SetString([]string{"text %d: ü\"\\\n", "\x00%d", "\xff%d", "%d"}[*next%4])
		v.SetString(fmt.Sprintf(v.String(), *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(*next % 200)
		if v.Type() == reflect.TypeFor[protocol.Kind]() {
			v.SetUint(uint64(protocol.Rate))
		}
	default:
		if v.CanInt() {
			v.SetInt(int64(*next))
		} else {
			v.SetUint(*next)
		}
	}
}

// stored returns a value after it was written and read.
func stored[T any](t *testing.T, value T) (read T) {
	t.Helper()
	if err := unpack([]byte(pack(value)), &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func newImage() (im protocol.Image) {
	fill(reflect.ValueOf(&im).Elem(), new(uint64))
	for i := range im.Sessions {
		im.Sessions[i].Extended = false // set by no store but SQLite
		for k := range im.Sessions[i].Results {
			im.Sessions[i].Results[k].Fence = protocol.Fence{} // computed for each reply
		}
	}
	return im
}

// TestRows_HaveAllOfAnImage fails if a field is added to the protocol that is not
// stored.
func TestRows_HaveAllOfAnImage(t *testing.T) {
	t.Parallel()
	want := newImage()
	h := stored(t, newHead(1, 1, want, protocol.Summary{}, 0))
	e := stored(t, entry{Plain: newPlainRow(want), State: newStateRows(want)})
	got, err := e.State.image(e.Plain.image(h))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwritten %+v\nread    %+v", err, want, got)
	}
}

func TestRows_HaveAllChanges(t *testing.T) {
	t.Parallel()
	im := newImage()
	before := newRows(im)
	delete(before.sessions, im.Sessions[2].ID) // which is opened now
	want := protocol.Changes{
		Image: plain(im), Sessions: im.Sessions, Ended: []protocol.Session{7}, Leases: im.Leases, Dropped: []protocol.Seq{8},
		Queue: im.Queue, Left: []protocol.TicketName{{Session: 1, Ticket: 2}}, Spent: im.Spent, Respent: true,
	}
	e := stored(t, entry{Plain: newPlainRow(im), Changes: newChangeRows(&want, before)})
	if e.Changes.Sessions[0].Opened != nil || e.Changes.Sessions[2].Opened == nil {
		t.Errorf("opened are %+v, want the last", e.Changes.Sessions)
	}
	got, err := e.Changes.changes(e.Plain.image(newHead(1, 1, im, protocol.Summary{}, 0)), before)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("%v\nwritten %+v\nread    %+v", err, want, *got)
	}
	if _, err := e.Changes.changes(im, newRows(protocol.Image{})); err == nil || !strings.Contains(err.Error(), "never opened") {
		t.Errorf("sessions without an owner: %v", err)
	}
}

func TestRows_HaveAllOfBatchesAndReplies(t *testing.T) {
	t.Parallel()
	var b protocol.Batch
	fill(reflect.ValueOf(&b).Elem(), new(uint64))
	if got, err := stored(t, newBatchRow(b)).batch(); err != nil || !reflect.DeepEqual(got, b) {
		t.Errorf("%v\nwritten %+v\nread    %+v", err, b, got)
	}
	var r protocol.Reply
	fill(reflect.ValueOf(&r).Elem(), new(uint64))
	if got := stored(t, newReplyRow(r)).reply(); !reflect.DeepEqual(got, r) {
		t.Errorf("written %+v\nread    %+v", r, got)
	}
}

func TestRows_RejectUnreadableTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"semaphore":{},"state":{"leases":[{"seq":1,"details":"site=\"main"}]}}`:                                                      "details",
		`{"semaphore":{},"state":{"queue":[{"details":"no fields"}]}}`:                                                                 "details",
		`{"semaphore":{},"state":{"sessions":[{"id":1,"opened":{"key":"00000000000000000000000000000000","client":"process=many"}}]}}`: "process",
		`{"semaphore":{},"state":{"sessions":[{"id":1}]}}`:                                                                             "never opened",
	} {
		var e entry
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
		if _, err := e.State.image(protocol.Image{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestRows_SpendingIsTheSameByItsDifferences compares spending that is written as a whole
// with spending that is written as differences.
func TestRows_SpendingIsTheSameByItsDifferences(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	r := newRows(protocol.Image{})
	var spent []protocol.SpentImage
	last := protocol.Seq(1)
	for range 500 {
		next := append([]protocol.SpentImage(nil), spent[rng.IntN(min(3, len(spent)+1)):]...)
		for range rng.IntN(4) {
			last += protocol.Seq(1 + rng.IntN(3))
			next = append(next, protocol.SpentImage{Seq: last, Weight: rng.Int64N(5), Until: protocol.Micros(last), Session: 1})
		}
		settled := map[protocol.Seq]bool{}
		for range rng.IntN(3) {
			if len(next) > 0 {
				i := rng.IntN(len(next))
				next[i].Weight, settled[next[i].Seq] = rng.Int64N(5), true
			}
		}
		if rng.IntN(20) == 0 {
			next = nil
		}
		added := len(next)
		if len(next) > 0 {
			added -= len(spent[indexOf(spent, next[0].Seq):])
		}
		c := &protocol.Changes{Image: protocol.Image{LastSeq: last}, Spent: next, Respent: true}
		rows := newChangeRows(c, r)
		if len(rows.Spent) > added+len(settled) {
			t.Fatalf("%d entries were written for %d new and %d settled ones", len(rows.Spent), added, len(settled))
		}
		got, err := stored(t, rows).changes(c.Image, r)
		if err != nil || !got.Respent || len(got.Spent) != len(next) || len(next) > 0 && !reflect.DeepEqual(got.Spent, next) {
			t.Fatalf("%v\nwritten %+v\nread    %+v", err, next, got.Spent)
		}
		r.apply(got)
		spent = next
	}
}

// TestSettle_WritesOneEntry checks that a settlement does not write all spending of the
// window.
func TestSettle_WritesOneEntry(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, 1)
	store, other := openAt(t, server, ""), openAt(t, server, "")
	s := sessiontest.Begin(t, store, "a", protocol.Config{Kind: protocol.Rate, Capacity: 2000, Window: sessiontest.TTL * 1000})
	var ops []protocol.Op
	for i := range protocol.Ticket(500) {
		ops = append(ops, sessiontest.Acquire(i+1, 2))
	}
	leases := s.Granted(len(ops), ops...)
	s.Send()
	s.Send(protocol.Op{Verb: protocol.Settle, Ticket: 1, Lease: leases[250], Weight: 7, Least: 2})
	log := server.Etcdctl("get", "--prefix", "--print-value-only", "--order", "DESCEND", "--limit", "1", "sema/log/a ")
	if want := fmt.Sprintf(`"weight":7,"seq":%d,`, leases[250]); strings.Count(log, `"until"`) != 1 || !strings.Contains(log, want) {
		t.Errorf("the entry is %.2000s", log)
	}
	for _, by := range []*Store{store, other} {
		if snapshot, err := by.Inspect(ctx, "a"); err != nil || snapshot.InUse != 1005 {
			t.Errorf("%d in use, %v, want 1005", snapshot.InUse, err)
		}
	}
}
