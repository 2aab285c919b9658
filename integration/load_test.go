package integration

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"
)

// loader writes commands to one server without waiting for each reply: a
// million members take about a second.
type loader struct {
	t    *testing.T
	conn net.Conn
	w    *bufio.Writer
	sent int
	got  chan error
	want chan int
}

func newLoader(t *testing.T, addr string, db int) *loader {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(3 * time.Minute))
	l := &loader{t: t, conn: conn, w: bufio.NewWriterSize(conn, 1<<18), got: make(chan error, 1), want: make(chan int, 1)}
	go l.read()
	l.cmd("SELECT", strconv.Itoa(db))
	return l
}

// read counts replies, all of which are one line, until as many came as were
// sent.
func (l *loader) read() {
	r := bufio.NewReaderSize(l.conn, 1<<16)
	n, want := 0, -1
	for want < 0 || n < want {
		select {
		case want = <-l.want:
			continue
		default:
		}
		line, err := r.ReadString('\n')
		if err == nil && line[0] == '-' {
			err = fmt.Errorf("server refused: %q", line)
		}
		if err != nil {
			l.got <- err
			return
		}
		n++
	}
	l.got <- nil
}

// cmd sends one command whose reply is a status or a number.
func (l *loader) cmd(args ...string) {
	fmt.Fprintf(l.w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(l.w, "$%d\r\n", len(a))
		l.w.WriteString(a)
		l.w.WriteString("\r\n")
	}
	l.sent++
}

// close waits until the server has taken everything. One PING more than was
// counted wakes a reader that is already waiting for a line.
func (l *loader) close() {
	l.t.Helper()
	l.want <- l.sent + 1
	l.cmd("PING")
	if err := l.w.Flush(); err != nil {
		l.t.Fatalf("loading: %v", err)
	}
	err := <-l.got
	_ = l.conn.Close()
	if err != nil {
		l.t.Fatalf("loading: %v", err)
	}
}

// fill writes n members of one key in commands of 500.
func (l *loader) fill(kind, key string, n int) {
	const batch = 500
	var verb string
	var member func(i int) []string
	switch kind {
	case "hash":
		verb, member = "HMSET", func(i int) []string { return []string{fmt.Sprintf("field:%d", i), fmt.Sprintf("value-%d", i)} }
	case "set":
		verb, member = "SADD", func(i int) []string { return []string{fmt.Sprintf("member:%d", i)} }
	case "list":
		verb, member = "RPUSH", func(i int) []string { return []string{fmt.Sprintf("entry:%d", i)} }
	case "zset": // half of the members have one and the same score
		verb, member = "ZADD", func(i int) []string { return []string{strconv.Itoa(i * (i % 2)), fmt.Sprintf("member:%d", i)} }
	case "ties": // all of them have
		verb, member = "ZADD", func(i int) []string { return []string{"1700000000", fmt.Sprintf("member:%d", i)} }
	case "string":
		buf := make([]byte, n)
		for i := range buf {
			buf[i] = byte('a' + i%26)
		}
		l.cmd("SET", key, string(buf))
		return
	default:
		panic("unknown kind " + kind)
	}
	for i := 0; i < n; i += batch {
		args := []string{verb, key}
		for j := i; j < min(i+batch, n); j++ {
			args = append(args, member(j)...)
		}
		l.cmd(args...)
	}
}

// kinds are the types that every data set has.
var kinds = []string{"hash", "set", "list", "zset", "string"}

// aggregates are those of them that are drained.
var aggregates = []string{"hash", "set", "list", "zset"}

// bigKey is one key that a test expects to be found.
type bigKey struct {
	keyID
	kind     string
	elements int64
}

// dataSet is what seed loaded.
type dataSet struct {
	big   []bigKey
	small int
}

// seed loads the data set of most tests: small keys of every type, some with
// a TTL, over three databases (in a cluster over all nodes), and among them
// four big ones.
func seed(t *testing.T, d *deployment, small int) dataSet {
	t.Helper()
	out := dataSet{small: small}
	loaders := map[string]*loader{}
	at := func(db int, key string) *loader {
		s := d.owner(key)
		id := fmt.Sprint(s.addr, "/", db)
		if loaders[id] == nil {
			loaders[id] = newLoader(t, s.addr, db)
		}
		return loaders[id]
	}
	dbs := []int{0, 0, 0, 3, 9}
	for i := range small {
		db := d.db(dbs[i%len(dbs)])
		kind := kinds[i/7%len(kinds)]
		key := fmt.Sprintf("small:%s:%d", kind, i)
		at(db, key).fill(kind, key, 1+i%20)
		if i%10 == 0 {
			at(db, key).cmd("EXPIRE", key, "86400")
		}
	}
	for i, kind := range aggregates {
		b := bigKey{keyID: keyID{d.db([]int{0, 0, 3, 9}[i]), "big:" + kind}, kind: kind,
			elements: map[string]int64{"hash": int64(size.hash), "set": int64(size.set), "list": int64(size.list), "zset": int64(size.zset)}[kind]}
		at(b.db, b.name).fill(kind, b.name, int(b.elements))
		out.big = append(out.big, b)
	}
	for _, l := range loaders {
		l.close()
	}
	return out
}

// load writes single keys; small helpers of tests use it.
func load(t *testing.T, d *deployment, db int, kind, key string, n int) {
	t.Helper()
	l := newLoader(t, d.owner(key).addr, d.db(db))
	l.fill(kind, key, n)
	l.close()
}

// bystand puts small keys around what a test is about.
func bystand(t *testing.T, d *deployment, db, n int) {
	t.Helper()
	loaders := map[*server]*loader{}
	for i := range n {
		key := fmt.Sprintf("bystander:%d", i)
		s := d.owner(key)
		if loaders[s] == nil {
			loaders[s] = newLoader(t, s.addr, d.db(db))
		}
		loaders[s].fill(kinds[i%len(kinds)], key, 1+i%9)
	}
	for _, l := range loaders {
		l.close()
	}
}

// elements sums the lengths of the big keys.
func (s dataSet) elements() (n int64) {
	for _, b := range s.big {
		n += b.elements
	}
	return n
}

// ids names the big keys.
func (s dataSet) ids() (out []keyID) {
	for _, b := range s.big {
		out = append(out, b.keyID)
	}
	return out
}
