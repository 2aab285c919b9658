package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// parseInfo reads the "name:value" lines of an INFO reply.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		if found && !strings.HasPrefix(name, "#") {
			fields[name] = value
		}
	}
	return fields
}

// setFromInfo fills in what the sections server, replication, memory and
// cluster tell. Valkey 8 says server_mode where Redis says redis_mode, so only
// cluster_enabled decides; the mode is read for servers that lack it.
func (s *Server) setFromInfo(fields map[string]string) {
	s.Name, s.Version = "redis", fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		s.Name, s.Version, s.compatible = "valkey", v, fields["redis_version"]
	}
	if s.Version == "" {
		s.Name = ""
	}
	s.RunID = fields["run_id"]
	s.Role = fields["role"]
	s.Allocator = fields["mem_allocator"]
	s.Policy = fields["maxmemory_policy"]
	switch fields["cluster_enabled"] {
	case "1":
		s.Cluster = true
	case "":
		s.Cluster = fields["redis_mode"] == "cluster" || fields["server_mode"] == "cluster"
	}
}

// keyspace reads the databases of an INFO keyspace section and their keys:
// "db0:keys=3,expires=0,avg_ttl=0", since 7.4 with ",subexpiry=0".
func keyspace(fields map[string]string) map[int]int64 {
	sizes := make(map[int]int64)
	for name, value := range fields {
		digits, isDB := strings.CutPrefix(name, "db")
		db, err := strconv.Atoi(digits)
		if !isDB || err != nil {
			continue
		}
		for pair := range strings.SplitSeq(value, ",") {
			if n, ok := strings.CutPrefix(pair, "keys="); ok {
				if keys, err := strconv.ParseInt(n, 10, 64); err == nil {
					sizes[db] = keys
				}
			}
		}
	}
	return sizes
}

// setFromHello fills in what a HELLO reply tells; it is asked only where INFO
// is refused. It returns the mode: standalone, cluster or sentinel.
func (s *Server) setFromHello(reply any) (mode string, err error) {
	fields, err := flatMap(reply)
	if err != nil {
		return "", fmt.Errorf("read HELLO reply: %w", err)
	}
	s.Name, _ = fields["server"].(string)
	s.Version, _ = fields["version"].(string)
	mode, _ = fields["mode"].(string)
	s.Cluster = mode == "cluster"
	switch role, _ := fields["role"].(string); role {
	case "master":
		s.Role = RoleMaster
	case "replica", "slave":
		s.Role = RoleSlave
	}
	return mode, nil
}

// flatMap reads a map as protocol 2 sends it: name, value, name, value.
func flatMap(reply any) (map[string]any, error) {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return nil, fmt.Errorf("not a list of pairs but %T", reply)
	}
	fields := make(map[string]any, len(list)/2)
	for i := 0; i < len(list); i += 2 {
		if name, ok := list[i].(string); ok {
			fields[name] = list[i+1]
		}
	}
	return fields, nil
}
