package topology

import (
	"maps"
	"testing"
)

func TestServerFromInfo(t *testing.T) {
	for name, tc := range map[string]struct {
		info string
		want Server
		text string
	}{
		"redis 7.0": {
			"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n# Replication\r\nrole:master\r\n" +
				"# Memory\r\nmem_allocator:jemalloc-5.3.0\r\nmaxmemory_policy:allkeys-lru\r\n# Cluster\r\ncluster_enabled:0\r\n",
			Server{Name: "redis", Version: "7.0.15", RunID: "abc", Role: "master", Allocator: "jemalloc-5.3.0", Policy: "allkeys-lru"},
			"redis 7.0.15"},
		"valkey 8.0": {
			"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\nserver_mode:cluster\r\nrun_id:abc\r\nrole:slave\r\ncluster_enabled:1\r\n",
			Server{Name: "valkey", Version: "8.0.1", RunID: "abc", Role: "slave", Cluster: true, compatible: "7.2.4"},
			"valkey 8.0.1"},
		"2.8 has no cluster": {
			"redis_version:2.8.24\nredis_mode:standalone\nrun_id:abc\nrole:master\nmem_allocator:libc\n",
			Server{Name: "redis", Version: "2.8.24", RunID: "abc", Role: "master", Allocator: "libc"},
			"redis 2.8.24"},
		"says nothing": {"# Server\r\n", Server{}, "unknown server"},
	} {
		var got Server
		got.setFromInfo(parseInfo(tc.info))
		if got != tc.want || got.String() != tc.text {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tc.want)
		}
	}
}

func TestKeyspace(t *testing.T) {
	got := keyspace(parseInfo("# Keyspace\r\ndb0:keys=3,expires=0,avg_ttl=0\r\ndb12:keys=5000000000,expires=1,avg_ttl=9,subexpiry=4\r\ndbx:keys=1\r\n"))
	if want := map[int]int64{0: 3, 12: 5000000000}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestServerFromHello(t *testing.T) {
	var s Server
	mode, err := s.setFromHello([]any{"server", "redis", "version", "6.2.14", "proto", int64(2), "mode", "cluster", "role", "replica", "modules", []any{}})
	if err != nil || mode != "cluster" || s.String() != "redis 6.2.14" || s.Role != RoleSlave || !s.Cluster {
		t.Errorf("got %+v, mode %q, %v", s, mode, err)
	}
	if _, err := s.setFromHello("PONG"); err == nil {
		t.Error("a proxy's reply was taken for HELLO's")
	}
}

func TestAtLeast(t *testing.T) {
	for _, tc := range []struct {
		server Server
		want   [3]int
		is     bool
	}{
		{Server{Name: "redis", Version: "7.0.15"}, [3]int{7, 0, 15}, true},
		{Server{Name: "redis", Version: "7.0.15"}, [3]int{7, 0, 16}, false},
		{Server{Name: "redis", Version: "6.0.14"}, [3]int{6, 0, 7}, true},
		{Server{Name: "redis", Version: "10.0.0"}, [3]int{7, 4, 0}, true},
		{Server{Name: "redis", Version: "7.4.0-rc1"}, [3]int{7, 4, 0}, true},
		{Server{Name: "redis", Version: "7.4"}, [3]int{7, 4, 0}, true},
		{Server{Name: "redis", Version: "unstable"}, [3]int{0, 0, 0}, false},
		{Server{Name: "valkey", Version: "8.0.1"}, [3]int{7, 2, 4}, true},
		{Server{Name: "valkey", Version: "8.0.1"}, [3]int{7, 4, 0}, false},
		{Server{Name: "miniredis", Version: "8.4.0"}, [3]int{1, 0, 0}, false},
		{Server{}, [3]int{0, 0, 0}, false},
	} {
		if got := tc.server.AtLeast(tc.want[0], tc.want[1], tc.want[2]); got != tc.is {
			t.Errorf("%v AtLeast %v = %v", tc.server, tc.want, got)
		}
	}
}
