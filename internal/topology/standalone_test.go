package topology

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/keyjanitor/keyjanitor/internal/config"
)

func ids(top *Topology) (list []string) {
	for _, s := range top.Shards() {
		list = append(list, fmt.Sprintf("%s=%d", s.ID, s.Keys))
	}
	return list
}

func TestDatabases(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		a := p.addr()
		top := mustOpen(t, p.target(), Options{})
		if got, want := ids(top), []string{a + "/0=0"}; !slices.Equal(got, want) {
			t.Errorf("empty server: got %v, want %v", got, want)
		}
		for _, db := range []int{0, 3, 11} {
			p.admin(redis.Options{DB: db}).Set(context.Background(), "k", db, 0)
		}
		top = mustOpen(t, p.target(), Options{})
		if got, want := ids(top), []string{a + "/0=1", a + "/3=1", a + "/11=1"}; !slices.Equal(got, want) || top.Cluster {
			t.Errorf("got %v, want %v", got, want)
		}
		for _, s := range top.Shards() {
			if v, err := s.Client().Get(context.Background(), "k").Int(); err != nil || v != s.DB {
				t.Errorf("client of %s reads %v, %v", s.ID, v, err)
			}
			if err := s.Verify(context.Background()); err != nil {
				t.Error(err)
			}
		}
		top = mustOpen(t, p.target(), Options{Databases: []int{5, 3, 99}})
		if got, want := ids(top), []string{a + "/3=1", a + "/5=0", a + "/99=-1"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if bad := top.Shards()[2]; bad.Err == nil || bad.Client() != nil || !strings.Contains(bad.Err.Error(), "SELECT 99") {
			t.Errorf("database 99: %v", bad.Err)
		}
		if _, err := Open(context.Background(), p.target(), Options{Databases: []int{99}}); err == nil {
			t.Error("opened a database that is not there")
		}
	})
}

// abilities writes what a shard can do: a letter for no, yes and unknown.
func abilities(s *Shard) string {
	var b strings.Builder
	for _, a := range []struct {
		name string
		have bool
	}{
		{abilityInfo, s.Can.Info}, {abilityScan, s.Can.Scan}, {abilityScanType, s.Can.ScanType},
		{abilityMemoryUsage, s.Can.MemoryUsage}, {abilityEncoding, s.Can.Encoding}, {abilityNoTouch, s.Can.NoTouch},
		{abilityNoValues, s.Can.NoValues}, {abilityScript, s.Can.Script}, {abilityWatch, s.Can.Watch},
		{abilityUnlink, s.Can.Unlink}, {abilityRename, s.Can.Rename},
	} {
		word := "-"
		switch {
		case a.have:
			word = "+"
		case slices.Contains(s.Unknown, a.name):
			word = "?"
		}
		fmt.Fprintf(&b, "%s%s ", word, a.name)
	}
	return strings.TrimSpace(b.String())
}

func TestAbilities(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		write := mustOpen(t, p.target(), Options{Writes: true}).Shards()[0]
		read := mustOpen(t, p.target(), Options{}).Shards()[0]
		t.Logf("%-14s writes: %s", write.Server, abilities(write))
		t.Logf("%-14s reads:  %s", read.Server, abilities(read))
		t.Logf("%-14s why: %v", write.Server, write.Why)
		s := write.Server
		atLeast := func(have bool, what string, version ...int) {
			t.Helper()
			if want := s.AtLeast(version[0], version[1], 0); have != want {
				t.Errorf("%v: %s is %v", s, what, have)
			}
		}
		can := write.Can
		if !can.Info || !can.Scan || !can.Encoding || !can.Watch || !can.Rename {
			t.Errorf("%v lacks what every version has: %s", s, abilities(write))
		}
		atLeast(can.Script, "script", 3, 2)
		atLeast(can.MemoryUsage, "memory usage", 4, 0)
		atLeast(can.Unlink, "unlink", 4, 0)
		atLeast(can.ScanType, "scan type", 6, 0)
		atLeast(can.NoTouch, "no-touch", 7, 2)
		if want := s.AtLeast(7, 4, 0) || s.Name == "valkey"; can.NoValues != want {
			t.Errorf("%v: novalues is %v", s, can.NoValues)
		}
		if s.RunID == "" || s.Role != RoleMaster || s.Allocator == "" || s.Cluster {
			t.Errorf("server is %+v", s)
		}
		if len(write.Unknown) > 0 {
			t.Errorf("%v: unknown %v", s, write.Unknown)
		}
		if got := p.info("persistence")["rdb_changes_since_last_save"]; got != "0" {
			t.Errorf("%v: probing changed the dataset: %s", s, got)
		}
		if got := p.admin(redis.Options{}).DBSize(context.Background()).Val(); got != 0 {
			t.Errorf("%v: probing left %d keys", s, got)
		}
	})
}

func TestReadOnlyProbingSendsNoWrite(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		mustOpen(t, p.target(), Options{})
		for name := range p.info("commandstats") {
			switch strings.TrimPrefix(name, "cmdstat_") {
			case "unlink", "renamenx", "persist", "watch", "multi", "exec", "del", "set":
				t.Errorf("sent %s", name)
			}
		}
	})
}

func TestUnlinkRenamedAway(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		start(t, binary).needs(4, 0)
		p := start(t, binary, `rename-command UNLINK ""`)
		s := mustOpen(t, p.target(), Options{Writes: true}).Shards()[0]
		if s.Can.Unlink || !s.Can.Rename || !strings.HasPrefix(s.Why["unlink"], "ERR unknown command") {
			t.Errorf("%s, why %v", abilities(s), s.Why)
		}
		s = mustOpen(t, p.target(), Options{}).Shards()[0]
		if s.Can.Unlink || slices.Contains(s.Unknown, "unlink") || s.Why["unlink"] == "" {
			t.Errorf("read-only: %s, why %v", abilities(s), s.Why)
		}
	})
}

func TestInfoRenamedAway(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary, `rename-command INFO ""`)
		p.admin(redis.Options{DB: 4}).Set(context.Background(), "k", 1, 0)
		top := mustOpen(t, p.target(), Options{Writes: true})
		s := top.Shards()[0]
		if got, want := ids(top), []string{p.addr() + "/4=1"}; !slices.Equal(got, want) || len(top.Notes) != 1 {
			t.Errorf("got %v, want %v, notes %v", got, want, top.Notes)
		}
		if s.Can.Info || !s.Can.Scan || !s.Can.Watch {
			t.Errorf("%v: %s", s.Server, abilities(s))
		}
		t.Logf("without INFO: %v, role %q", s.Server, s.Server.Role)
		if err := s.Verify(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestACLWithoutUnlink(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		p.needs(6, 0)
		p.do("ACL SETUSER jan on >secret ~mi:* +@all -unlink -memory")
		target := p.target()
		target.Username, target.Password = "jan", "secret"
		s := mustOpen(t, target, Options{Writes: true}).Shards()[0]
		if s.Can.Unlink || s.Can.MemoryUsage || !strings.HasPrefix(s.Why["unlink"], "NOPERM ") {
			t.Errorf("%s, why %v", abilities(s), s.Why)
		}
		// The made-up keys are outside ~mi:*, the commands are allowed all the same.
		if !s.Can.Rename || !s.Can.Watch || !s.Can.Encoding {
			t.Errorf("refused keys were taken for refused commands: %s, why %v", abilities(s), s.Why)
		}
	})
}

func TestACLWithoutCommand(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		p.needs(6, 0)
		p.do("ACL SETUSER jan on >secret ~* +@all -command -info -dbsize -select")
		target := p.target()
		target.Username, target.Password = "jan", "secret"
		top := mustOpen(t, target, Options{})
		s := top.Shards()[0]
		if len(top.Shards()) != 1 || s.Keys != -1 || s.Server.Version == "" || s.Server.Role != RoleMaster {
			t.Errorf("%v, %+v", ids(top), s)
		}
		if want := []string{"rename", "unlink", "watch"}; !slices.Equal(s.Unknown, want) {
			t.Errorf("unknown %v", s.Unknown)
		}
		if s.Can.NoValues && !strings.HasPrefix(s.Why["no_values"], "assumed of ") {
			t.Errorf("why %v", s.Why)
		}
		t.Log(s.Server, abilities(s), s.Why)
		target.DBs = []int{0, 1}
		top = mustOpen(t, target, Options{})
		if err := top.Shards()[1].Err; top.Shards()[0].Err != nil || !errors.Is(err, ErrAuth) {
			t.Errorf("database 1: %v", err)
		}
	})
}

func TestACLHalfATransaction(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		p.needs(6, 0)
		p.do("ACL SETUSER jan on >secret ~* +@all -exec")
		target := p.target()
		target.Username, target.Password = "jan", "secret"
		s := mustOpen(t, target, Options{Writes: true}).Shards()[0]
		if s.Can.Watch || !s.Can.Unlink {
			t.Errorf("%s, why %v", abilities(s), s.Why)
		}
		if err := s.Client().Ping(context.Background()).Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestACLRuleCausesNoRefusal(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		p.needs(6, 0)
		for _, purpose := range Purposes {
			writes := purpose != PurposeScan
			rule := mustOpen(t, p.target(), Options{}).Shards()[0].ACLRule(purpose)
			t.Log(purpose, rule)
			p.do("ACL SETUSER jan reset on >secret " + rule)
			refused := func() string { return p.info("errorstats")["errorstat_NOPERM"] }
			before := refused()
			target := p.target()
			target.Username, target.Password, target.DBs = "jan", "secret", []int{0, 2}
			top := mustOpen(t, target, Options{Writes: writes})
			for _, s := range top.Shards() {
				if err := errors.Join(s.Verify(context.Background()), s.Client().Ping(context.Background()).Err()); err != nil {
					t.Error(err)
				}
			}
			if after := refused(); after != before {
				t.Errorf("%s: refusals %q, were %q", purpose, after, before)
			}
			if log, _ := p.do("ACL LOG").([]any); len(log) > 0 {
				t.Errorf("%s: ACL LOG has %v", purpose, log)
			}
		}
	})
}

func TestLogin(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary, "requirepass right")
		for _, tc := range []struct {
			name, user string
			password   config.Secret
			want       string
		}{
			{"none", "", "", "the default user without a password: NOAUTH"},
			{"wrong", "", "wrong-password", "the default user: "},
			{"unknown user", "jan", "wrong-password", `user "jan": `},
		} {
			target := p.target()
			target.Username, target.Password = tc.user, tc.password
			_, err := Open(context.Background(), target, Options{})
			if !errors.Is(err, ErrAuth) || !strings.Contains(fmt.Sprint(err), tc.want) || !strings.Contains(fmt.Sprint(err), p.addr()) {
				t.Errorf("%s: %v", tc.name, err)
			}
			if strings.Contains(fmt.Sprint(err), "wrong-password") {
				t.Errorf("%s: the password shows: %v", tc.name, err)
			}
			t.Log(err)
		}
		target := p.target()
		target.Password = "right"
		if s := mustOpen(t, target, Options{}).Shards()[0]; s.Client().Ping(context.Background()).Err() != nil {
			t.Error("the right password does not work")
		}
	})
}

// verifyReached verifies a shard whose server was down: after some failed
// dials the client waits up to a second before it tries the next.
func verifyReached(s *Shard) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		err := s.Verify(context.Background())
		if !isDialError(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestRestartIsAnotherIdentity(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		p := start(t, binary)
		s := mustOpen(t, p.target(), Options{}).Shards()[0]
		if err := s.Client().Ping(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		p.stop()
		if err := s.Verify(context.Background()); err == nil || errors.Is(err, ErrIdentity) {
			t.Errorf("a server that is down: %v", err)
		}
		p.run()
		if err := verifyReached(s); !errors.Is(err, ErrIdentity) || !strings.Contains(err.Error(), p.addr()) {
			t.Errorf("after a restart: %v", err)
		}
		for range 3 {
			if err := s.Client().Set(context.Background(), "k", 1, 0).Err(); err == nil {
				t.Fatal("a command reached another process")
			} else if !errors.Is(err, ErrIdentity) {
				t.Errorf("client: %v", err)
			}
		}
	})
}

func TestReplica(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		primary, p := start(t, binary), start(t, binary)
		s := mustOpen(t, p.target(), Options{Writes: true}).Shards()[0]
		p.do(fmt.Sprintf("SLAVEOF 127.0.0.1 %d", primary.port))
		if err := s.Verify(context.Background()); !errors.Is(err, ErrRole) {
			t.Errorf("Verify: %v", err)
		}
		if err := s.Client().Set(context.Background(), "k", 1, 0).Err(); !errors.Is(err, ErrRole) {
			t.Errorf("client: %v", err)
		}
		for deadline := time.Now().Add(10 * time.Second); p.info("replication")["master_link_status"] != "up"; {
			if time.Now().After(deadline) {
				t.Fatal("replication does not start")
			}
			time.Sleep(20 * time.Millisecond)
		}
		_, err := Open(context.Background(), p.target(), Options{Writes: true})
		if !errors.Is(err, ErrRole) || !strings.Contains(err.Error(), "replica of "+primary.addr()) {
			t.Errorf("opened for writing: %v", err)
		}
		both := p.target()
		both.Addresses = append(both.Addresses, primary.addr())
		if s := mustOpen(t, both, Options{Writes: true}).Shards()[0]; s.Addr != primary.addr() {
			t.Errorf("opened %s", s.Addr)
		}
		top := mustOpen(t, p.target(), Options{})
		if s := top.Shards()[0]; s.Server.Role != RoleSlave || s.Verify(context.Background()) != nil || len(top.Notes) != 1 {
			t.Errorf("opened for reading: %+v, %v", s, top.Notes)
		}
	})
}

func TestUnixSocket(t *testing.T) {
	eachServer(t, func(t *testing.T, binary string) {
		socket := t.TempDir() + "/s"
		p := start(t, binary, "unixsocket "+socket)
		target := p.target()
		target.Addresses = []string{socket}
		s := mustOpen(t, target, Options{}).Shards()[0]
		if err := s.Client().Ping(context.Background()).Err(); err != nil || s.ID != socket+"/0" {
			t.Errorf("%s: %v", s.ID, err)
		}
	})
}

func TestEveryAddressIsNamed(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	hangUp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp.Close()
	go func() {
		for {
			c, err := hangUp.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	target := config.Target{Name: "t", Addresses: []string{closed.Addr().String(), hangUp.Addr().String()}}
	_, err = Open(context.Background(), target, Options{})
	for _, want := range []string{`open target "t"`, closed.Addr().String() + ": connection refused", hangUp.Addr().String(), "may want TLS"} {
		if !strings.Contains(strings.ReplaceAll(fmt.Sprint(err), "connect: ", ""), want) {
			t.Errorf("no word of %q in: %v", want, err)
		}
	}
	target.TLS = &config.TLS{}
	if _, err = Open(context.Background(), target, Options{}); err == nil {
		t.Error("TLS to nobody")
	}
}

func TestOpenRespectsTheDeadline(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = Open(ctx, config.Target{Addresses: []string{silent.Addr().String()}}, Options{})
	if took := time.Since(begin); err == nil || took > 3*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

func TestMiniredisIsStandalone(t *testing.T) {
	m := miniredis.RunT(t)
	m.Set("k", "v")
	target := config.Target{Name: "t", Addresses: []string{m.Addr()}, Mode: config.ModeAuto}
	for _, writes := range []bool{false, true} {
		top := mustOpen(t, target, Options{Writes: writes})
		s := top.Shards()[0]
		t.Logf("%v writes=%v: %s\nwhy %v\nnotes %v", s.Server, writes, abilities(s), s.Why, top.Notes)
		if got, want := ids(top), []string{m.Addr() + "/0=1"}; !slices.Equal(got, want) || top.Cluster {
			t.Errorf("got %v, want %v, cluster %v", got, want, top.Cluster)
		}
		if err := errors.Join(s.Verify(context.Background()), s.Client().Ping(context.Background()).Err()); err != nil {
			t.Error(err)
		}
		if writes != s.Can.Unlink {
			t.Errorf("writes %v: %s", writes, abilities(s))
		}
	}
}

func TestNothingRunsOnAfterClose(t *testing.T) {
	m := miniredis.RunT(t)
	target := config.Target{Name: "t", Addresses: []string{m.Addr()}}
	before := runtime.NumGoroutine()
	for range 5 {
		top := mustOpen(t, target, Options{})
		if err := top.Shards()[0].Verify(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := top.Close(); err != nil {
			t.Error(err)
		}
	}
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<16)
			t.Fatalf("%d goroutines, were %d:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}
