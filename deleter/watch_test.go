package deleter

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// noFacts is an order that asks for no more than the type.
var noFacts = Order{Key: "a", Type: "string"}

func TestWatchOneKey(t *testing.T) {
	var (
		look = []any{"OK", "string", "OK"} // WATCH, TYPE, MULTI
		sent = []string{"watch", "type", "multi"}
	)
	for _, test := range []struct {
		name    string
		answers []any // after those of the look
		want    Reply
		sent    []string // after those of the look
	}{
		{"acted", []any{"QUEUED", []any{int64(1)}}, Reply{Status: Acted}, []string{"unlink", "exec"}},
		{"gone meanwhile", []any{"QUEUED", []any{int64(0)}}, Reply{Status: StillGone}, []string{"unlink", "exec"}},
		{"refused", []any{says("NOPERM no"), says("EXECABORT discarded")}, Reply{Err: says("NOPERM no")}, []string{"unlink", "exec"}},
		{"lost", []any{errLost, errLost}, Reply{Err: errLost}, []string{"unlink", "exec"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, s := newStore(t, byWatch, inTurn(t, slices.Concat(look, test.answers)...))
			got := store.Remove(t.Context(), []Order{noFacts}, Unlink)[0]
			if got.Status != test.want.Status || !errors.Is(got.Err, test.want.Err) {
				t.Errorf("%v, want %v", got, test.want)
			}
			s.wantCommands(slices.Concat(sent, test.sent)...)
		})
	}
}

// Behind a MULTI that was refused an act would run at once, watched or not:
// nothing may be sent after it.
func TestNothingIsSentWithoutMulti(t *testing.T) {
	for _, test := range []struct {
		name    string
		answers []any
		fatal   bool
		sent    []string
	}{
		{"MULTI refused", []any{"OK", "string", says("NOPERM no")}, false, []string{"watch", "type", "multi"}},
		{"busy", []any{says("BUSY script"), says("BUSY script"), says("BUSY script")}, true, []string{"watch", "type", "multi"}},
		{"WATCH refused", []any{says("NOPERM no"), "string", "OK", "OK"}, false, []string{"watch", "type", "multi", "discard"}},
		{"neither can be left", []any{says("NOPERM no"), "string", "OK", says("NOPERM no")}, true, []string{"watch", "type", "multi", "discard"}},
		{"TYPE refused", []any{"OK", says("NOPERM no"), "OK", "OK"}, false, []string{"watch", "type", "multi", "discard"}},
		{"nothing to do, and no way out", []any{"OK", "none", "OK", says("NOPERM no")}, true, []string{"watch", "type", "multi", "discard"}},
		{"lost", []any{"OK", errLost, errLost}, true, []string{"watch", "type", "multi"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, s := newStore(t, byWatch, inTurn(t, test.answers...))
			got := store.Remove(t.Context(), []Order{noFacts}, Unlink)[0]
			if got.Status != "" || got.Err == nil || Fatal(got.Err) != test.fatal {
				t.Errorf("%v, fatal %t", got, Fatal(got.Err))
			}
			s.wantCommands(test.sent...)
		})
	}
}

// What EXEC itself, or a reply inside it, refuses leaves open what was done.
func TestExecInDoubt(t *testing.T) {
	for name, exec := range map[string]any{
		"refused":         says("NOPERM no"),
		"refused inside":  []any{int64(-1), int64(1), says("NOPERM no")},
		"too few replies": []any{int64(-1), int64(1)},
		"lost":            errLost,
	} {
		t.Run(name, func(t *testing.T) {
			store, _ := newStore(t, byWatch, inTurn(t, "OK", "string", "OK", "QUEUED", "QUEUED", "QUEUED", exec))
			got := store.SetAside(t.Context(), noFacts, "trash")
			if !inDoubt(got.Err) || !Fatal(got.Err) {
				t.Errorf("%v: in doubt %t, fatal %t", got, inDoubt(got.Err), Fatal(got.Err))
			}
		})
	}
}

func TestSetAsideByWatch(t *testing.T) {
	const trash = "keyjanitor:trash:{0}:1:d:0:-1:-:0123456789abcdef:a"
	blind := byWatch
	blind.WatchSeesPersist = false
	onTTL := Order{Key: "a", Type: "string", Evidence: Evidence{TTLUnder: time.Hour}}
	for _, test := range []struct {
		name    string
		order   Order
		answers []any
		want    Reply
	}{
		{"acted", noFacts, []any{"OK", "string", "OK", "QUEUED", "QUEUED", "QUEUED", []any{int64(-1), int64(1), int64(0)}}, Reply{Status: Acted}},
		{"taken", noFacts, []any{"OK", "string", "OK", "QUEUED", "QUEUED", "QUEUED", []any{int64(-1), int64(0), int64(0)}}, Reply{Err: errTaken}},
		{"expired", noFacts, []any{"OK", "string", "OK", "QUEUED", "QUEUED", "QUEUED", []any{int64(-2), says("ERR no such key"), int64(0)}}, Reply{Status: StillGone}},
		{"given back", onTTL, []any{
			"OK", "string", int64(1000), "OK", "QUEUED", "QUEUED", "QUEUED", []any{int64(-1), int64(1), int64(0)},
			"OK", int64(1), []any{int64(1)}, // MULTI, RENAMENX, EXEC
		}, Reply{Status: Unmet}},
		{"given back with its TTL", Order{Key: "a", Type: "string", Evidence: Evidence{TTLOver: time.Hour}}, []any{
			"OK", "string", int64(3_600_001), "OK", "QUEUED", "QUEUED", "QUEUED", []any{int64(0), int64(1), int64(1)},
			"OK", int64(1), int64(1), int64(0), []any{}, // MULTI, PEXPIRE, RENAMENX, PERSIST, EXEC
		}, Reply{Status: Unmet}},
		{"not given back", onTTL, []any{
			"OK", "string", int64(1000), "OK", "QUEUED", "QUEUED", "QUEUED", []any{int64(-1), int64(1), int64(0)},
			"OK", int64(0), []any{}, // MULTI, RENAMENX, EXEC
			int64(1), // RENAMENX
		}, Reply{Err: keyError(`give back "a": the name was taken meanwhile; the key is in the trash as "keyjanitor:trash:{0}:1:k:9223372036854775807:-1:-:0123456789abcdef:a"`)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, s := newStore(t, blind, inTurn(t, test.answers...))
			got := store.SetAside(t.Context(), test.order, trash)
			if got.Status != test.want.Status || !errors.Is(got.Err, test.want.Err) {
				t.Errorf("%v, want %v", got, test.want)
			}
			if strings.Contains(test.name, "given back") {
				s.golden(strings.ReplaceAll(test.name, " ", "_"))
			}
		})
	}
}

// A key that others write to is judged again, a bounded number of times; of
// several keys none was removed, and each is judged by itself.
func TestConflicts(t *testing.T) {
	conflicts := 0
	answer := func(args []string) any {
		switch args[0] {
		case "type":
			return "string"
		case "exec":
			if conflicts--; conflicts >= 0 {
				return nil
			}
			return []any{int64(1)}
		}
		return "OK"
	}
	two := []Order{{Key: "a", Type: "string"}, {Key: "b", Type: "string"}}
	for _, test := range []struct {
		name      string
		conflicts int
		orders    []Order
		want      []Status
		execs     int
	}{
		{"one key, once", 1, two[:1], []Status{Acted}, 2},
		{"one key, ever", 1000, two[:1], []Status{""}, attempts},
		{"two keys, once", 1, two, []Status{Acted, Acted}, 3},
		{"two keys, ever", 1000, two, []Status{"", ""}, 1 + 2*attempts},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, s := newStore(t, byWatch, answer)
			conflicts = test.conflicts
			got := store.Remove(t.Context(), test.orders, Unlink)
			if !slices.Equal(statuses(got), test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
			for _, r := range got {
				if r.Status == "" && (!errors.Is(r.Err, redis.TxFailedErr) || Fatal(r.Err) || inDoubt(r.Err)) {
					t.Errorf("%v: fatal %t, in doubt %t", r, Fatal(r.Err), inDoubt(r.Err))
				}
			}
			execs := 0
			for _, cmd := range s.commands() {
				if cmd == "exec" {
					execs++
				}
			}
			if execs != test.execs {
				t.Errorf("%d times EXEC, want %d", execs, test.execs)
			}
		})
	}
}

// A key that the user may not touch costs the others of its MULTI nothing.
func TestOneRefusedAmongMany(t *testing.T) {
	aborted := false
	store, _ := newStore(t, byWatch, func(args []string) any {
		switch {
		case args[0] == "type":
			return "string"
		case args[0] == "unlink" && args[1] == "b":
			aborted = true
			return says("NOPERM no")
		case args[0] == "exec" && aborted:
			aborted = false
			return says("EXECABORT discarded")
		case args[0] == "exec":
			return []any{int64(1)}
		}
		return "OK"
	})
	got := store.Remove(t.Context(), []Order{{Key: "a", Type: "string"}, {Key: "b", Type: "string"}, {Key: "c", Type: "string"}}, Unlink)
	if want := []Status{Acted, "", Acted}; !slices.Equal(statuses(got), want) || got[1].Err == nil {
		t.Errorf("%v, want %v", got, want)
	}
}

// A lost reply is not asked for again.
func TestLostReplyIsNotRepeated(t *testing.T) {
	store, s := newStore(t, byWatch, inTurn(t,
		"OK", "string", "string", "OK", "QUEUED", "QUEUED", errLost,
	))
	got := store.Remove(t.Context(), []Order{{Key: "a", Type: "string"}, {Key: "b", Type: "string"}}, Unlink)
	for _, r := range got {
		if !errors.Is(r.Err, errLost) {
			t.Errorf("%v, want %v", r, errLost)
		}
	}
	s.wantCommands("watch", "type", "type", "multi", "unlink", "unlink", "exec")
}
