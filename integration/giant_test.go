package integration

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// slow1ms logs what takes more than a millisecond: enough to name the slowest
// command where none is slow.
const slow1ms option = "slowlog-log-slower-than 1000"

// TestGiantTies drains a sorted set whose members share one score, so that no
// score tells where a batch ends: 5,000,000 of them at full scale. It does not
// run beside others: it reads the slow log.
func TestGiantTies(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, slow1ms)
		bystand(t, d, 0, 50)
		before := digestOf(t, d)
		load(t, d, 0, "ties", "giant", size.giantTies)
		s := drainGiant(t, d, size.giantTies, 0)
		if b := s.Findings[0].Batches; b < int64(size.giantTies/10_000) {
			s.from.error("%d members in %d batches", size.giantTies, b)
		}
		mustEqual(t, before, digestOf(t, d))
	})
}

// TestGiantFields drains a hash of few fields with huge values, 100 of 50 MB
// at full scale: no value may come to us, so memory stays flat.
func TestGiantFields(t *testing.T) {
	eachServer(t, func(t *testing.T, b serverBinary) {
		d := standalone(t, b, slow1ms)
		fillGiant(t, d.masters[0], "giant", size.giantFields, size.giantValue)
		drainGiant(t, d, size.giantFields, size.giantMemory)
		if n := d.size(t); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// drainGiant drains the key "giant" and fails if a command took long, or if
// the process took more memory than it may (0: whatever it takes).
func drainGiant(t *testing.T, d *deployment, elements int, memory int64) summary {
	t.Helper()
	o := newOperator(t)
	w := observe(t, d)
	p := startProbe(t, d.masters[0])
	run := o.start(t, "clean", "--url", d.url(), "--match", "giant", "--method", "drain", "--execute", "--format", "json")
	peak := watchMemory(run)
	res := run.wait()
	neighbour := p.end()
	s := res.exit(0).summary()
	s.outcomes(map[string]int64{"drained": 1})
	if *s.ElementsRemoved != int64(elements) {
		res.error("elements_removed is %d, want %d", *s.ElementsRemoved, elements)
	}
	w.nothingSlow(t)
	most := peak()
	t.Logf("%d elements in %v, %d batches; slowest on the server: %v; at most %d MB resident; %v", elements,
		res.took.Round(time.Millisecond), s.Findings[0].Batches, w.slowest(t), most>>20, neighbour)
	if memory > 0 && most > memory {
		t.Errorf("the process took %d MB, and may take %d", most>>20, memory>>20)
	}
	return s
}

// watchMemory reads the high-water mark of a process until it ends; after
// that nobody knows it any more. It returns how to ask for it.
func watchMemory(r *running) func() int64 {
	var most int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !r.ended() {
			most = max(most, residentPeak(r.cmd.Process.Pid))
			select {
			case <-r.done:
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() int64 { <-done; return most }
}

// slowest is the command of ours that took the server longest.
func (w *witness) slowest(t *testing.T) string {
	t.Helper()
	var worst logged
	for _, l := range w.journal(t) {
		if l.took > worst.took && !slices.Contains(ours, l.verb()) {
			worst = l
		}
	}
	if worst.args == nil {
		return "none over 1ms"
	}
	return fmt.Sprintf("%s, %v", worst.verb(), worst.took)
}

// fillGiant writes values of so many bytes, which no loader should hold twice.
func fillGiant(t *testing.T, s *server, key string, fields, bytes int) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", s.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
	value := []byte(strings.Repeat("v", bytes) + "\r\n")
	r := bufio.NewReader(conn)
	for i := range fields {
		field := fmt.Sprint("field:", i)
		_, err := fmt.Fprintf(conn, "*4\r\n$4\r\nHSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n", len(key), key, len(field), field, bytes)
		if err == nil {
			_, err = conn.Write(value)
		}
		reply := ""
		if err == nil {
			reply, err = r.ReadString('\n')
		}
		if err != nil || reply != ":1\r\n" {
			t.Fatalf("loading: %q %v", reply, err)
		}
	}
}
